//! Why a request is not routed by its blocks. Owns the closed list of reasons and their words; must never
//! change what is done about one.

use crate::attest::Reason;
use crate::decline::Decline;

/// Why exact routing leaves a request to the next tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Miss {
    /// The rule does not ask for it.
    ModeOff,
    /// `kvWarmupSec` has not passed.
    Warmup,
    /// There is no text to tokenize.
    TextEmpty,
    /// Neither the request nor the rule names a model.
    ModelEmpty,
    /// Several prompts in one request.
    Batch,
    /// A prompt longer than this gateway hashes.
    TooLong,
    /// A member that decides what blocks are called is not what it has to be.
    Unreadable,
    /// Tokenization would have had to wait too long.
    TokenizerBusy,
    /// The prompt has no full block.
    Hashes,
    /// The keys of this request can't be proven equal to the engine's.
    Declined(Decline),
    /// No source knows of any block.
    NoSignal,
    /// All sources are fenced.
    Fenced,
    /// All endpoints take requests by load alone: their answers contradict what was predicted.
    Untrusted,
    /// Of no endpoint all is proven that the rule's model profile asks for; of the first this.
    Unproven(Reason),
    /// Blocks are known, none of this prompt's first ones.
    NoWorker,
    /// All runs are below the minimum depth.
    Shallow,
    /// Those with overlap, or all, are down, draining or were just tried.
    Excluded,
    /// The loads are too far apart (`LLB_KV_LOADGUARD`).
    LoadGuard,
    /// All that were listed had reached their load bound when the request was to be reserved.
    Bounded,
}

impl Miss {
    /// As in the gateway's own metrics, receipts and explanations.
    pub const fn word(self) -> &'static str {
        match self {
            Miss::ModeOff => "mode_off",
            Miss::Warmup => "warmup",
            Miss::TextEmpty => "text_empty",
            Miss::ModelEmpty => "model_empty",
            Miss::Batch => "batch",
            Miss::TooLong => "too_long",
            Miss::Unreadable => "unreadable",
            Miss::TokenizerBusy => "tokenizer_busy",
            Miss::Hashes => "hashes",
            Miss::Declined(decline) => decline.word(),
            Miss::NoSignal => "no_signal",
            Miss::Fenced => "fenced",
            Miss::Untrusted => "untrusted",
            Miss::Unproven(reason) => reason.word(),
            Miss::NoWorker => "no_worker",
            Miss::Shallow => "shallow",
            Miss::Excluded => "excluded",
            Miss::LoadGuard => "load_guard",
            Miss::Bounded => "bounded",
        }
    }

    /// As in `loxilb_pd_kv_tier15_miss_reason_total`, whose label set is fixed: ours fall to the nearest.
    pub const fn seed_word(self) -> &'static str {
        match self {
            Miss::Batch => "text_empty",
            Miss::Declined(Decline::NoPrompt | Decline::NoMessages | Decline::ManyPrompts) => "text_empty",
            Miss::Declined(Decline::Chain(_)) | Miss::TooLong => "hashes",
            Miss::Declined(_) | Miss::TokenizerBusy | Miss::Unreadable => "tokenize",
            Miss::NoSignal | Miss::Fenced | Miss::Untrusted | Miss::Unproven(_) => "no_worker",
            Miss::LoadGuard | Miss::Bounded => "excluded",
            Miss::ModeOff
            | Miss::Warmup
            | Miss::TextEmpty
            | Miss::ModelEmpty
            | Miss::Hashes
            | Miss::NoWorker
            | Miss::Shallow
            | Miss::Excluded => self.word(),
        }
    }

    /// Whether it counts for the zero-hit watchdog: something is held, and nothing of it was asked for.
    pub const fn is_zero_hit(self) -> bool {
        matches!(self, Miss::NoWorker)
    }
}

/// What the zero-hit watchdog says. Many lookups in a row that find nothing in caches that hold something are
/// most often another hash seed, block size or tokenizer than the engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroHits {
    /// Nothing unusual.
    Quiet,
    /// The row has just become suspicious: to be counted and logged.
    Begin,
    /// It goes on: to be counted.
    GoOn,
}

/// Judges a row of `missed` lookups without a hit, as [`crate::shared::ExactState::missed`] counts them.
/// `after`: the length that is suspicious; 0: none is.
pub const fn zero_hits(missed: u32, after: u32) -> ZeroHits {
    if after == 0 || missed < after {
        ZeroHits::Quiet
    } else if missed == after {
        ZeroHits::Begin
    } else {
        ZeroHits::GoOn
    }
}
