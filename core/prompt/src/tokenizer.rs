//! Text into token ids, by the tokenizer that engines use, `tokenizers`, which is the reference, and a fast one, which
//! must have agreed with the reference at load and stays watched: this repository's where it knows the kind, else
//! `fastokens`. Owns the choice between them; must never use the fast one again once it differed, and never start a
//! thread that stays.

mod boundary;
mod byte_level;
mod corpus;
mod fast;

pub use boundary::{Boundaries, Boundary, Unsafe};
pub use byte_level::Recent;

use crate::shared::Trust;
use fast::Fast;
use serde_json::Value;
use std::fmt;

/// A tokenizer, shared by all threads.
pub struct Tokenizer {
    reference: tokenizers::Tokenizer,
    fast: Option<Fast>,
    /// Letters that only the reference reads right.
    rare: Vec<&'static str>,
    trust: Trust,
    refusal: Option<Refusal>,
    around: Option<Around>,
    boundaries: Boundaries,
}

/// Which tokenizer the engine itself uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The fast one where it agrees with the reference.
    Fast,
    /// The reference alone.
    Reference,
}

/// Why the fast tokenizer is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The reference was asked for.
    Chosen,
    /// It can't read the file, or not without starting threads.
    Unsupported(String),
    /// It differed from the reference at load, first on this sample.
    Differed {
        /// The sample.
        text: String,
    },
    /// It differed from the reference on a request.
    Diverged,
}

/// Why a `tokenizer.json` can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerFault {
    /// It is not JSON, or not of this form.
    Unreadable(String),
    /// BPE dropout: the engine's ids are random.
    Random,
    /// The thread that loads can't be started.
    NoThread(String),
}

/// What the post-processor puts around a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// Before it.
    pub before: Vec<u32>,
    /// Behind it.
    pub behind: Vec<u32>,
}

/// The tokenizer failed on a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodeFault(pub String);

impl fmt::Display for TokenizerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenizerFault::Unreadable(what) => write!(f, "tokenizer.json can't be read: {what}"),
            TokenizerFault::Random => f.write_str(
                "tokenizer.json has BPE dropout: the engine's ids are random; set dropout to null",
            ),
            TokenizerFault::NoThread(what) => {
                write!(
                    f,
                    "a thread to load tokenizer.json can't be started: {what}; raise the limit on threads"
                )
            }
        }
    }
}

impl std::error::Error for TokenizerFault {}

impl fmt::Display for EncodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the tokenizer fails: {}", self.0)
    }
}

impl std::error::Error for EncodeFault {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Chosen => f.write_str("the reference was asked for"),
            Refusal::Unsupported(what) => write!(f, "the fast tokenizer can't be used: {what}"),
            Refusal::Differed { text } => write!(f, "the fast tokenizer differs at load on {text:?}"),
            Refusal::Diverged => f.write_str("the fast tokenizer differed on a request"),
        }
    }
}

impl Tokenizer {
    /// From the bytes of a `tokenizer.json`: read, checked on a built-in corpus and warmed. Takes a second for a
    /// vocabulary of 150,000, and must not be done by a thread that serves. It is done by a thread that ends with it,
    /// so that what the fast tokenizer keeps for a thread goes back ([`Tokenizer::warm`]).
    pub fn load(json: &[u8], choice: Choice) -> Result<Tokenizer, TokenizerFault> {
        let loaded = std::thread::scope(|scope| {
            let loader = std::thread::Builder::new().name("tokenizer-check".into());
            loader.spawn_scoped(scope, || Tokenizer::read(json, choice)).map(|thread| thread.join())
        });
        match loaded {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(fault) => Err(TokenizerFault::NoThread(fault.to_string())),
        }
    }

    fn read(json: &[u8], choice: Choice) -> Result<Tokenizer, TokenizerFault> {
        let unreadable = |what: String| TokenizerFault::Unreadable(what);
        let document: Value = serde_json::from_slice(json).map_err(|fault| unreadable(fault.to_string()))?;
        if document["model"]["dropout"].as_f64().is_some_and(|dropout| dropout > 0.0) {
            return Err(TokenizerFault::Random);
        }
        tokenizers::utils::parallelism::set_parallelism(false);
        let mut reference =
            tokenizers::Tokenizer::from_bytes(json).map_err(|fault| unreadable(fault.to_string()))?;
        // Engines encode with both off, whatever the file says.
        reference.with_truncation(None).map_err(|fault| unreadable(fault.to_string()))?;
        reference.with_padding(None);
        let boundaries = Boundaries::of(&document, &reference);
        let around = around(&reference);
        let (fast, refusal) = match fast(document, choice, &reference, &boundaries) {
            Ok(fast) => (Some(fast), None),
            Err(refusal) => (None, Some(refusal)),
        };
        let differs = |texts: &[&str]| {
            fast.as_ref().is_some_and(|fast| texts.iter().any(|text| !agree(fast, &reference, text)))
        };
        let rare =
            corpus::RARE.iter().filter(|(_, texts)| differs(texts)).map(|(letter, _)| *letter).collect();
        Ok(Tokenizer { reference, fast, rare, trust: Trust::default(), refusal, around, boundaries })
    }

    /// Appends the ids of `text`; added tokens in it are recognized, none are put around it. `recent` are the words
    /// that the calling thread met last, which are not read anew.
    pub fn encode(&self, text: &str, recent: &mut Recent, out: &mut Vec<u32>) -> Result<(), EncodeFault> {
        match &self.fast {
            Some(fast) if self.trust.holds() && !self.is_rare(text) => fast.encode(text, recent, out),
            _ => encode(&self.reference, text, out),
        }
    }

    /// Makes the calling thread ready, so that its first text costs what later ones do: `fastokens` copies its table
    /// of words for each thread, 16 MiB for a vocabulary of 150,000. That takes 2 to 5 ms, and 40 where a virtual
    /// machine has to get the memory from its host. A thread keeps the tables of the four tokenizers used last. This
    /// repository's has nothing to set up.
    pub fn warm(&self) {
        // A text that fails here fails again where it is asked for.
        let _ = self.encode(corpus::WARMING, &mut Recent::default(), &mut Vec::new());
    }

    fn is_rare(&self, text: &str) -> bool {
        self.rare.iter().any(|letter| memchr::memmem::find(text.as_bytes(), letter.as_bytes()).is_some())
    }

    /// Encodes `text` with both tokenizers. False if they differ: then the fast one is not used again. Slow, for
    /// a sampler beside the hot path.
    pub fn check(&self, text: &str) -> bool {
        let Some(fast) = self.fast.as_ref().filter(|_| self.trust.holds() && !self.is_rare(text)) else {
            return true;
        };
        let agree = agree(fast, &self.reference, text);
        if !agree {
            self.trust.end();
        }
        agree
    }

    /// Why the fast tokenizer is not used; `None` while it is.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.refusal {
            None if !self.trust.holds() => Some(&Refusal::Diverged),
            refusal => refusal.as_ref(),
        }
    }

    /// What `add_special_tokens` puts around a text; `None` if the post-processor does something else.
    pub fn around(&self) -> Option<&Around> {
        self.around.as_ref()
    }

    /// Where rendered text may be cut.
    pub fn boundaries(&self) -> &Boundaries {
        &self.boundaries
    }

    /// The id of a token.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.reference.token_to_id(token)
    }
}

fn encode(reference: &tokenizers::Tokenizer, text: &str, out: &mut Vec<u32>) -> Result<(), EncodeFault> {
    let encoding = reference.encode_fast(text, false).map_err(|fault| EncodeFault(fault.to_string()))?;
    out.extend_from_slice(encoding.get_ids());
    Ok(())
}

fn agree(fast: &Fast, reference: &tokenizers::Tokenizer, text: &str) -> bool {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let both = (fast.encode(text, &mut Recent::default(), &mut ours), encode(reference, text, &mut theirs));
    both.0.is_ok() == both.1.is_ok() && ours == theirs
}

fn fast(
    document: Value,
    choice: Choice,
    reference: &tokenizers::Tokenizer,
    boundaries: &Boundaries,
) -> Result<Fast, Refusal> {
    if choice == Choice::Reference {
        return Err(Refusal::Chosen);
    }
    let added: Vec<&str> = boundaries.tokens().map(|(token, _)| token).collect();
    let samples = corpus::samples(&added);
    let difference = |fast: &Fast| samples.iter().find(|text| !agree(fast, reference, text));
    if let Some(own) = Fast::own(&document).filter(|own| difference(own).is_none()) {
        return Ok(own);
    }
    let fast = Fast::foreign(document).map_err(Refusal::Unsupported)?;
    match difference(&fast) {
        None => Ok(fast),
        Some(text) => Err(Refusal::Differed { text: text.clone() }),
    }
}

/// Found by comparing, so that any post-processor that only adds tokens is understood.
fn around(reference: &tokenizers::Tokenizer) -> Option<Around> {
    let probe = |text: &str| {
        let ids = |special| reference.encode_fast(text, special).map(|ids| ids.get_ids().to_vec()).ok();
        Some((ids(false)?, ids(true)?))
    };
    let probes = [probe("a")?, probe("b c\nd")?];
    let (bare, whole) = &probes[0];
    let added = whole.len().checked_sub(bare.len())?;
    let candidates = (0..=added)
        .map(|at| Around { before: whole[..at].to_vec(), behind: whole[at + bare.len()..].to_vec() });
    candidates.into_iter().find(|around| {
        probes
            .iter()
            .all(|(bare, whole)| [&around.before, bare.as_slice(), &around.behind].concat() == *whole)
    })
}

#[cfg(test)]
mod tests;
