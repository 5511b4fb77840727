//! From a request to the keys of its prompt's blocks, on any thread. Owns which members of a body enter,
//! and how far short blocks are thinned out; must never look a key up.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use warmpath_core::block::BlockKey;
use warmpath_core::decide::exact::Miss;
use warmpath_core::decline::Decline;
use warmpath_core::engine::{self, Contract, Extras, Lora, Scratch};
use warmpath_core::shared::Adapter;
use warmpath_parser::json::{self, JsonLimits, Kind, Member, Members};
use warmpath_prompt::{Api, Beside, Checkpoints, Date, Desk, Model, Plan, Request, Scheme, beside};

/// The longest prompt of token ids that is hashed. A longer one is told to be too long, never cut.
pub const TOKENS_MAX: usize = 1 << 20;

/// Tokens between two keys that are looked up, at least, where a rank that holds a block has all before it.
const LOOKUP_TOKENS: usize = 16;

/// Lists longer than this are not kept from one request to the next.
const KEPT_MAX: usize = 1 << 17;

/// Bytes of a text that both tokenizers encode.
const SAMPLE_MAX: usize = 16 * 1024;

/// The keys of one prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Those of full units, first to last; empty after a miss.
    pub keys: Vec<u64>,
    /// Tokens that each stands for: a block, or several where blocks are short.
    pub unit: usize,
    /// Tokens of the prompt.
    pub tokens: usize,
}

/// What a prompt is read by.
#[derive(Clone)]
pub struct Terms {
    /// How its blocks are named.
    pub scheme: Scheme,
    /// The model, or why there is none; not asked for where token ids are given.
    pub model: Result<Arc<Model>, Miss>,
    /// The adapter that the request names as its model.
    pub adapter: Option<Adapter>,
    /// Which API the body is for.
    pub api: Api,
    /// What templates print.
    pub today: Option<Date>,
}

/// A text that is rendered and looked up, and has still to be encoded.
#[derive(Debug)]
pub struct Left {
    plan: Plan,
    beside: Beside,
}

/// Makes keys, in memory that is used again.
#[derive(Default)]
pub struct PromptReader {
    /// Those made last.
    pub keys: Keys,
    ids: Vec<u32>,
    scratch: Scratch,
    desk: Desk,
}

impl Keys {
    /// Tokens that an engine which holds the first `run` keys' blocks need not compute: all of them, but for the
    /// block of the last token, which every engine computes to have its logits.
    pub fn predicted(&self, run: u32) -> u32 {
        let most = self.tokens.saturating_sub(1) / self.unit.max(1);
        let units = most.min(run as usize);
        u32::try_from(units * self.unit).unwrap_or(u32::MAX)
    }

    /// Becomes a copy, in memory that is used again.
    pub fn copy(&mut self, other: &Keys) {
        self.keys.clone_from(&other.keys);
        (self.unit, self.tokens) = (other.unit, other.tokens);
    }

    /// Becomes empty.
    pub fn clear(&mut self) {
        self.keys.clear();
        (self.unit, self.tokens) = (1, 0);
    }
}

impl Terms {
    fn request<'a>(&self, body: &'a [u8], members: &'a Members) -> Request<'a> {
        Request { body, members, today: self.today, tools: self.scheme.tools() }
    }

    /// What names blocks beside their tokens. An adapter in a namespace has a name that nobody outside the engine
    /// knows, made of both.
    fn extras<'a>(&'a self, beside: &'a Beside) -> Result<Extras<'a>, Decline> {
        if self.adapter.is_some() && beside.namespace.is_some() {
            return Err(Decline::Chain(engine::Decline::NamespaceUnseen));
        }
        let lora = self.adapter.as_ref().map(|own| Lora { name: &own.name, path: own.path.as_deref() });
        let (salt, namespace) = (beside.salt.as_deref(), beside.namespace.as_deref());
        Ok(Extras { lora, salt, namespace, ..Extras::default() })
    }
}

impl Left {
    /// Whether it goes on with an earlier turn.
    pub fn is_resumed(&self) -> bool {
        self.plan.is_resumed()
    }

    /// The text, or what is new of it.
    pub fn text(&self) -> &str {
        self.plan.text().unwrap_or_default()
    }

    /// What of the text is still to be encoded.
    pub fn rest(&self) -> &str {
        self.plan.rest()
    }
}

/// The token ids that a model makes of a body, where nobody waits for them; `None`: it makes none.
pub fn ids(model: &Model, api: Api, body: &[u8], today: Option<Date>) -> Option<Vec<u32>> {
    let mut members = Members::new();
    json::peek(body, &mut members, JsonLimits::default()).ok()?;
    let made = catch_unwind(AssertUnwindSafe(|| {
        let prompt = model.read(api, body, &members, today, None).ok()?;
        model.ids(&prompt).ok()
    }));
    made.ok().flatten()
}

impl PromptReader {
    /// Reads the prompt of a body that was peeked at. Token ids are named at once; of a text it returns what is
    /// left to do, for [`PromptReader::finish`].
    pub fn begin(
        &mut self,
        body: &[u8],
        members: &Members,
        terms: &Terms,
        checkpoints: &Checkpoints,
    ) -> Result<Option<Left>, Miss> {
        self.forget();
        if terms.api == Api::Completions && gives_ids(body, members) {
            return self.read_ids(body, members, terms).map(|()| None);
        }
        if !gives_text(members, terms.api) {
            return Err(Miss::TextEmpty);
        }
        let model = terms.model.as_ref().map_err(|miss| *miss)?;
        self.unpanicked(|reader| {
            let prompt = model.read_for(checkpoints, terms.api, terms.request(body, members))?;
            let beside = prompt.beside.clone();
            let extras = terms.extras(&beside)?;
            let plan = model.plan(prompt, &terms.scheme, &extras, checkpoints, &mut reader.desk)?;
            Ok(Some(Left { plan, beside }))
        })
    }

    /// Goes on with an earlier turn of a chat, if one is known: what is left is then what is new. Else it is
    /// [`PromptReader::begin`]'s to begin at the beginning.
    pub fn resume(
        &mut self,
        body: &[u8],
        members: &Members,
        terms: &Terms,
        checkpoints: &Checkpoints,
    ) -> Option<Left> {
        let model = terms.model.as_ref().ok().filter(|_| terms.api == Api::Chat)?;
        let request = terms.request(body, members);
        let resumed = self.unpanicked(|reader| {
            let beside = beside(body, members)?;
            let extras = terms.extras(&beside)?;
            let plan = model.resume(request, &terms.scheme, &extras, checkpoints, &mut reader.desk);
            Ok(plan.map(|plan| Left { plan, beside }))
        });
        // A reason to decline is the whole way's to find again.
        resumed.ok().flatten()
    }

    /// Encodes what is left of a text and names its blocks.
    pub fn finish(&mut self, left: &Left, terms: &Terms, checkpoints: &Checkpoints) -> Result<(), Miss> {
        self.forget();
        let model = terms.model.as_ref().map_err(|miss| *miss)?;
        self.unpanicked(|reader| {
            let extras = terms.extras(&left.beside)?;
            model.keys(&left.plan, &terms.scheme, &extras, checkpoints, &mut reader.desk)
        })?;
        let step = step(terms.scheme.contract());
        let units = self.desk.keys.iter().skip(step - 1).step_by(step);
        self.keys.keys.extend(units.map(|BlockKey(key)| *key));
        self.keys.unit = step * terms.scheme.contract().block_size().tokens();
        self.keys.tokens = self.desk.tokens as usize;
        if self.keys.keys.is_empty() { Err(Miss::Hashes) } else { Ok(()) }
    }

    /// Whether both tokenizers of a model read a text alike; if not, the fast one is not used again.
    pub fn check(model: &Model, text: &str) -> bool {
        catch_unwind(AssertUnwindSafe(|| model.tokenizer().check(text))).unwrap_or(true)
    }

    /// Whether a chat that was gone on with has the text of a whole rendering; if not, none is gone on with again.
    pub fn check_resumed(left: &Left, body: &[u8], terms: &Terms, checkpoints: &Checkpoints) -> bool {
        let mut members = Members::new();
        let peeked = json::peek(body, &mut members, JsonLimits::default()).is_ok();
        let Some(model) = terms.model.as_ref().ok().filter(|_| peeked) else { return true };
        let request = terms.request(body, &members);
        let Ok(extras) = terms.extras(&left.beside) else { return true };
        let check = || model.check_resumed(&left.plan, request, &terms.scheme, &extras, checkpoints);
        catch_unwind(AssertUnwindSafe(check)).unwrap_or(true)
    }

    /// What of a text is checked: its end, which no earlier turn had, and no more than the reference reads in
    /// some milliseconds.
    pub fn sample(text: &str) -> &str {
        let from = text.len().saturating_sub(SAMPLE_MAX);
        let from = (from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        &text[from..]
    }

    /// Tokenizers and templates are other people's code, fed with anybody's text: what makes one panic must not
    /// end a thread that serves others.
    fn unpanicked<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Decline>) -> Result<T, Miss> {
        match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(done) => done.map_err(miss_of),
            Err(_) => {
                self.desk = Desk::default();
                Err(Miss::Declined(Decline::Encode))
            }
        }
    }

    fn forget(&mut self) {
        if self.ids.capacity().max(self.keys.keys.capacity()).max(self.desk.keys.capacity()) > KEPT_MAX {
            let desk = std::mem::take(&mut self.desk).renewed();
            *self = PromptReader { desk, ..PromptReader::default() };
        }
        self.keys.clear();
        self.ids.clear();
    }

    fn read_ids(&mut self, body: &[u8], members: &Members, terms: &Terms) -> Result<(), Miss> {
        let prompt = members.get(Member::Prompt).ok_or(Miss::TextEmpty)?;
        if !json::token_ids(body, prompt, &mut self.ids) {
            return Err(Miss::Batch);
        }
        if self.ids.len() > TOKENS_MAX {
            return Err(Miss::TooLong);
        }
        let beside = beside(body, members).map_err(miss_of)?;
        self.keys.tokens = self.ids.len();
        let extras = terms.extras(&beside).map_err(miss_of)?;
        self.hash(terms.scheme.contract(), &extras)
    }

    fn hash(&mut self, contract: &Contract, extras: &Extras<'_>) -> Result<(), Miss> {
        let step = step(contract);
        self.keys.unit = step * contract.block_size().tokens();
        let chain = contract.chain(extras, &mut self.scratch);
        let mut chain = chain.map_err(|decline| Miss::Declined(decline.into()))?;
        let (keys, mut number) = (&mut self.keys.keys, 0);
        chain.feed(&self.ids, |key, _| {
            number += 1;
            if number % step == 0 {
                keys.push(key.0);
            }
        });
        if keys.is_empty() { Err(Miss::Hashes) } else { Ok(()) }
    }
}

/// What has words of its own since prompts of token ids were routed keeps them.
fn miss_of(decline: Decline) -> Miss {
    match decline {
        Decline::ManyPrompts => Miss::Batch,
        Decline::NoPrompt | Decline::NoMessages => Miss::TextEmpty,
        other => Miss::Declined(other),
    }
}

/// Whether a body may have keys, before a thread that has the time looks at it.
pub fn is_readable(body: &[u8], members: &Members, terms: &Terms) -> Result<(), Miss> {
    if terms.api == Api::Completions && gives_ids(body, members) {
        return Ok(());
    }
    if !gives_text(members, terms.api) {
        return Err(Miss::TextEmpty);
    }
    terms.model.as_ref().map(|_| ()).map_err(|miss| *miss)
}

/// Whether there can be text where the API has it.
fn gives_text(members: &Members, api: Api) -> bool {
    match api {
        Api::Chat => members.get(Member::Messages).is_some(),
        Api::Completions => members
            .get(Member::Prompt)
            .is_some_and(|prompt| matches!(prompt.kind, Kind::String { .. } | Kind::Array)),
    }
}

/// Whether a completion's prompt is a list that holds no text: token ids, or what is refused as them.
pub(crate) fn gives_ids(body: &[u8], members: &Members) -> bool {
    let list = members.get(Member::Prompt).filter(|prompt| prompt.kind == Kind::Array);
    let first = |list| json::elements(body, list).next();
    list.is_some_and(|list| !first(list).is_some_and(|item| matches!(item.kind, Kind::String { .. })))
}

/// Every how many blocks one is looked up: each, unless they are short and residency has no holes.
fn step(contract: &Contract) -> usize {
    match contract.engine().is_prefix_closed() {
        true => LOOKUP_TOKENS.div_ceil(contract.block_size().tokens()),
        false => 1,
    }
}
