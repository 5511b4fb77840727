//! A request's way to its keys, in three steps that may run on two threads: [`Model::read`] renders;
//! [`Model::plan`] finds what checkpoints know and thereby how much text is left to encode; [`Model::keys`] encodes
//! and names that rest, and keeps new checkpoints. [`Model::resume`] stands for the first two where an earlier turn
//! of the conversation is known: it renders what is new alone. Owns the order of these steps.

use crate::checkpoint::{Hashing, Key, Prefix, Scheme};
use crate::decline::Decline;
use crate::request::{
    Api, Beside, Clock, CompletionsBos, Conversation, Given, Policy, beside, conversation, prompt,
};
use crate::shared::{Checkpoints, Trust};
use crate::template::{Date, RenderFault, Template};
use crate::tokenizer::{Around, Boundary, Recent, Tokenizer};
use crate::turn::Raw;
use minijinja::value::Value;
use std::sync::Arc;
use warmpath_core::block::BlockKey;
use warmpath_core::engine::{Chain, Extras, Scratch, ToolForm};
use warmpath_parser::json::{self, Members};

mod resume;

use resume::Draft;

/// A beginning shorter than this many bytes is encoded faster than it is worth being kept. The first cut behind
/// it is kept beside the last of a prompt: a long system prompt, which conversations share, ends there.
const WORTH: usize = 1024;

/// One served model: how its requests become tokens. Never changes; shared by all threads.
pub struct Model {
    id: u64,
    tokenizer: Tokenizer,
    template: Option<Template>,
    policy: Arc<Policy>,
    /// Special tokens, as the template sees them.
    specials: Vec<(String, Value)>,
    /// That going on with a rendering gives the text of a whole one.
    going_on: Trust,
}

/// A request, as a model reads it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The body, which has passed `peek`.
    pub body: &'a [u8],
    /// Its members.
    pub members: &'a Members,
    /// The date in UTC.
    pub today: Option<Date>,
    /// What the engine makes of the definitions of tools.
    pub tools: Option<ToolForm>,
}

/// What is to be tokenized.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// What names blocks beside tokens.
    pub beside: Beside,
    input: Input,
}

#[derive(Clone, Debug)]
enum Input {
    Text { text: String, around: Around, draft: Option<Draft> },
    Tokens(Vec<u32>),
}

/// What is left to do for a prompt. May be sent to another thread.
#[derive(Debug)]
pub struct Plan {
    input: Input,
    /// Cuts that may be kept, in order, each with its key.
    cuts: Vec<(Boundary, Key)>,
    /// Up to where the text is known, and what is known of it.
    known: Option<(Boundary, Arc<Prefix>)>,
    /// The text begins with this cut of the whole text, up to which the key is this.
    begins: Option<(Boundary, Key)>,
}

/// Buffers of one thread, and the result in them.
#[derive(Debug, Default)]
pub struct Desk {
    /// The keys of the prompt's full blocks, after [`Model::keys`].
    pub keys: Vec<BlockKey>,
    /// How many tokens the prompt has.
    pub tokens: u64,
    /// How many of them a checkpoint gave.
    pub reused: u64,
    scratch: Scratch,
    ids: Vec<u32>,
    /// Tokens behind the last full block.
    pending: Vec<u32>,
    words: Recent,
    /// The messages of a chat, each with the hash of all up to it.
    messages: Vec<(Raw, json::Value)>,
}

impl Desk {
    /// Another one, with the words that its thread met last.
    pub fn renewed(self) -> Desk {
        Desk { words: self.words, ..Desk::default() }
    }
}

impl Model {
    /// `id` tells models apart in the store of checkpoints: another one for other files.
    pub fn new(id: u64, tokenizer: Tokenizer, template: Option<Template>, policy: Policy) -> Model {
        let specials = policy.special_tokens.iter();
        let specials = specials.map(|(name, token)| (name.clone(), Value::from(token.as_str()))).collect();
        let policy = Arc::new(policy);
        Model { id, tokenizer, template, policy, specials, going_on: Trust::default() }
    }

    /// The tokenizer, for the sampler and for status.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// From a body that has passed `peek` to what is to be tokenized. `today` is the date in UTC, which templates
    /// get where the model's profile says that the engines print it; `tools` is what the engine makes of their
    /// definitions, `None` where that is not verified.
    pub fn read(
        &self,
        api: Api,
        body: &[u8],
        members: &Members,
        today: Option<Date>,
        tools: Option<ToolForm>,
    ) -> Result<Prompt, Decline> {
        self.read_under(None, api, Request { body, members, today, tools })
    }

    /// The same for a prompt that [`Model::plan`] gets with these checkpoints: the next turn of its conversation will
    /// be known to [`Model::resume`].
    pub fn read_for(
        &self,
        checkpoints: &Checkpoints,
        api: Api,
        request: Request<'_>,
    ) -> Result<Prompt, Decline> {
        self.read_under(Some(checkpoints), api, request)
    }

    fn read_under(
        &self,
        checkpoints: Option<&Checkpoints>,
        api: Api,
        request: Request<'_>,
    ) -> Result<Prompt, Decline> {
        let beside = beside(request.body, request.members)?;
        let input = match api {
            Api::Chat => self.read_chat(checkpoints, request)?,
            Api::Completions if !self.policy.completions => return Err(Decline::ProfileApi),
            Api::Completions => match prompt(request.body, request.members)? {
                Given::Tokens(ids) => Input::Tokens(ids),
                Given::Text { text, specials } => {
                    Input::Text { text, around: self.around(specials)?, draft: None }
                }
            },
        };
        Ok(Prompt { beside, input })
    }

    fn read_chat(&self, checkpoints: Option<&Checkpoints>, request: Request<'_>) -> Result<Input, Decline> {
        let conversation = conversation(request.body, request.members, &self.policy, request.tools)?;
        let messages = conversation.messages.clone();
        let template = self.template.as_ref().ok_or(Decline::NoTemplate)?;
        let (more, today) = (self.more(&conversation), self.today(request));
        let seen = self.seen(conversation);
        let (text, draft) = match checkpoints.filter(|_| self.going_on.holds()) {
            None => (template.render(seen, &more, today).map_err(decline_of)?, None),
            Some(checkpoints) => {
                let (text, stop) = template.render_kept(seen, &more, today).map_err(decline_of)?;
                let draft = stop.filter(|stop| stop.at >= WORTH);
                (text, draft.and_then(|stop| self.draft(checkpoints, request, &messages, stop)))
            }
        };
        Ok(Input::Text { text, around: Around::default(), draft })
    }

    /// The date that the template may print.
    fn today(&self, request: Request<'_>) -> Option<Date> {
        request.today.filter(|_| self.policy.clock == Clock::UtcDate)
    }

    /// What the template sees under names of its own.
    fn seen(&self, conversation: Conversation) -> [(&'static str, Value); 4] {
        [
            ("messages", conversation.messages),
            ("tools", conversation.tools),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(true)),
        ]
    }

    /// What it sees beside: special tokens, and what the request sets itself.
    fn more(&self, conversation: &Conversation) -> Vec<(String, Value)> {
        self.specials.iter().chain(&conversation.kwargs).cloned().collect()
    }

    fn around(&self, specials: bool) -> Result<Around, Decline> {
        match (specials, self.policy.completions_bos) {
            (false, _) => Ok(Around::default()),
            (true, CompletionsBos::File) => self.tokenizer.around().cloned().ok_or(Decline::SpecialTokens),
            (true, CompletionsBos::Always(id)) => Ok(Around { before: vec![id], behind: Vec::new() }),
        }
    }

    /// Looks the prompt's cuts up, the longest beginning first. `extras` are the request's.
    pub fn plan(
        &self,
        prompt: Prompt,
        scheme: &Scheme,
        extras: &Extras<'_>,
        checkpoints: &Checkpoints,
        desk: &mut Desk,
    ) -> Result<Plan, Decline> {
        let Input::Text { text, around, draft } = &prompt.input else {
            return Ok(Plan::whole(prompt.input));
        };
        if !is_in_text(extras) || text.len() < WORTH {
            return Ok(Plan::whole(prompt.input));
        }
        let name = scheme.name(extras, &mut desk.scratch)?;
        let mut hashing = Hashing::new(checkpoints.secret(), self.id, name, &around.before, text);
        let cuts: Vec<(Boundary, Key)> =
            self.tokenizer.boundaries().find(text).map(|cut| (cut, hashing.key(&cut))).collect();
        if let Some(draft) = draft {
            draft.keep(text, 0, &cuts, name, checkpoints);
        }
        let long = |(cut, _): &&(Boundary, Key)| cut.end >= WORTH;
        let known =
            cuts.iter().rev().take_while(long).find_map(|(cut, key)| Some((*cut, checkpoints.get(key)?)));
        let begin = known.as_ref().map_or(WORTH - 1, |(cut, _)| cut.end);
        let kept = |(cut, _): &&(Boundary, Key)| cut.end > begin;
        let first = cuts.iter().find(kept).filter(|_| known.is_none()).copied();
        let last = cuts.get(before_answer(&cuts)).filter(kept).copied();
        let last = last.filter(|(cut, _)| first.is_none_or(|(first, _)| first.end < cut.end));
        let cuts = first.into_iter().chain(last).collect();
        Ok(Plan { cuts, known, ..Plan::whole(prompt.input) })
    }

    /// Encodes what is left, names the blocks into `desk`, and keeps checkpoints.
    pub fn keys(
        &self,
        plan: &Plan,
        scheme: &Scheme,
        extras: &Extras<'_>,
        checkpoints: &Checkpoints,
        desk: &mut Desk,
    ) -> Result<(), Decline> {
        let (text, around) = match &plan.input {
            Input::Text { text, around, .. } => (text.as_str(), around),
            Input::Tokens(ids) => return Naming::begin(scheme, extras, None, desk)?.only(ids),
        };
        let known = plan.known.as_ref();
        let mut naming = Naming::begin(scheme, extras, known.map(|(_, prefix)| &**prefix), desk)?;
        if known.is_none() {
            naming.feed(&around.before);
        }
        let mut from = known.map(|(cut, _)| *cut);
        for (cut, key) in &plan.cuts {
            self.piece(text, from, cut.end, &mut naming)?;
            checkpoints.insert(*key, naming.prefix());
            from = Some(*cut);
        }
        self.piece(text, from, text.len(), &mut naming)?;
        naming.feed(&around.behind);
        Ok(())
    }

    /// The tokens of a prompt, for tools: a shard has [`Model::keys`].
    pub fn ids(&self, prompt: &Prompt) -> Result<Vec<u32>, Decline> {
        let (text, around) = match &prompt.input {
            Input::Text { text, around, .. } => (text, around),
            Input::Tokens(ids) => return Ok(ids.clone()),
        };
        let mut ids = around.before.clone();
        self.tokenizer.encode(text, &mut Recent::default(), &mut ids).map_err(|_| Decline::Encode)?;
        ids.extend_from_slice(&around.behind);
        Ok(ids)
    }

    /// Encodes the text behind a cut, from the cut's token on, whose id is known and dropped.
    fn piece(
        &self,
        text: &str,
        from: Option<Boundary>,
        end: usize,
        naming: &mut Naming<'_>,
    ) -> Result<(), Decline> {
        let begin = from.map_or(0, |cut| cut.start);
        let piece = text.get(begin..end).ok_or(Decline::Encode)?;
        naming.ids.clear();
        self.tokenizer.encode(piece, naming.words, naming.ids).map_err(|_| Decline::Encode)?;
        let behind = match from {
            None => 0,
            Some(cut) if naming.ids.first() == Some(&cut.id) => 1,
            // The proof at load says that this can't be; a wrong key would be worse than none.
            Some(_) => return Err(Decline::Encode),
        };
        naming.feed_ids(behind);
        Ok(())
    }
}

impl Prompt {
    /// The rendered text, or the prompt's; `None` where tokens were given.
    pub fn text(&self) -> Option<&str> {
        self.input.text()
    }
}

impl Plan {
    /// With nothing known and nothing to keep.
    fn whole(input: Input) -> Plan {
        Plan { input, cuts: Vec::new(), known: None, begins: None }
    }

    /// Whether it goes on with an earlier turn.
    pub fn is_resumed(&self) -> bool {
        self.begins.is_some()
    }

    /// The text, or what is new of it, for the sampler's [`Tokenizer::check`].
    pub fn text(&self) -> Option<&str> {
        self.input.text()
    }

    /// The text that [`Model::keys`] will encode: some 5 µs a KiB of prose by the fast tokenizer, 400 µs by the
    /// reference.
    pub fn rest(&self) -> &str {
        let known = self.known.as_ref().map_or(0, |(cut, _)| cut.end);
        self.text().and_then(|text| text.get(known..)).unwrap_or_default()
    }
}

impl Input {
    fn text(&self) -> Option<&str> {
        match self {
            Input::Text { text, .. } => Some(text),
            Input::Tokens(_) => None,
        }
    }
}

/// Media and embeddings are not in the text.
fn is_in_text(extras: &Extras<'_>) -> bool {
    extras.media.is_empty() && extras.embeds.is_empty()
}

fn decline_of(fault: RenderFault) -> Decline {
    match fault {
        RenderFault::Raised(_) => Decline::Raised,
        RenderFault::Clock(_) => Decline::Clock,
        RenderFault::Failed(_) => Decline::Template,
    }
}

/// The cut behind which only the invitation to answer stands, a few tokens that follow each other closely. The
/// next turn agrees up to there at least; what an answer begins with, templates may drop from history.
fn before_answer(cuts: &[(Boundary, Key)]) -> usize {
    const CLOSE: usize = 32;
    const MOST: usize = 3;
    let last = cuts.len().saturating_sub(1);
    let close = |at: &usize| cuts[*at].0.start - cuts[*at - 1].0.end <= CLOSE;
    last - (1..=last).rev().take_while(close).take(MOST).count()
}

/// A chain being fed, and the tokens that a checkpoint needs.
struct Naming<'a> {
    chain: Chain<'a>,
    size: u64,
    keys: &'a mut Vec<BlockKey>,
    ids: &'a mut Vec<u32>,
    words: &'a mut Recent,
    pending: &'a mut Vec<u32>,
    tokens: &'a mut u64,
}

impl<'a> Naming<'a> {
    /// From the beginning, or behind what is known.
    fn begin(
        scheme: &'a Scheme,
        extras: &'a Extras<'a>,
        known: Option<&Prefix>,
        desk: &'a mut Desk,
    ) -> Result<Naming<'a>, Decline> {
        let contract = scheme.contract();
        let Desk { keys, tokens, reused, scratch, ids, pending, words, .. } = desk;
        keys.clear();
        pending.clear();
        *reused = known.map_or(0, |known| known.tokens);
        *tokens = *reused;
        let chain = match known {
            None => contract.chain(extras, scratch)?,
            Some(known) => {
                keys.extend_from_slice(&known.keys);
                pending.extend_from_slice(&known.pending);
                let mut chain = contract.resume(known.chain, extras, scratch)?;
                chain.feed(&known.pending, |key, _| keys.push(key));
                chain
            }
        };
        Ok(Naming { chain, size: contract.block_size().tokens() as u64, keys, ids, words, pending, tokens })
    }

    fn only(mut self, ids: &[u32]) -> Result<(), Decline> {
        self.feed(ids);
        Ok(())
    }

    fn feed(&mut self, tokens: &[u32]) {
        let keys = &mut *self.keys;
        self.chain.feed(tokens, |key, _| keys.push(key));
        *self.tokens += tokens.len() as u64;
        let behind = (*self.tokens - self.chain.checkpoint().blocks * self.size) as usize;
        if tokens.len() >= behind {
            self.pending.clear();
            self.pending.extend_from_slice(&tokens[tokens.len() - behind..]);
        } else {
            self.pending.extend_from_slice(tokens);
            self.pending.drain(..self.pending.len() - behind);
        }
    }

    /// Feeds the ids of a piece but the first `behind`.
    fn feed_ids(&mut self, behind: usize) {
        let ids = std::mem::take(self.ids);
        self.feed(&ids[behind..]);
        *self.ids = ids;
    }

    /// What is known here.
    fn prefix(&self) -> Prefix {
        Prefix {
            tokens: *self.tokens,
            pending: self.pending.as_slice().into(),
            keys: self.keys.as_slice().into(),
            chain: self.chain.checkpoint(),
        }
    }
}
