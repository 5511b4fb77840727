//! How an engine is started: the arguments that decide what its caches look like. Owns the list of questions; the
//! answers stand in each engine's file.

/// Arguments by what they say, in the form with `-`; `None`: this engine has none for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchFlags {
    /// Tokens in a block.
    pub block_size: Option<&'static str>,
    /// Data-parallel ranks.
    pub ranks: Option<&'static str>,
    /// Type of the model's numbers.
    pub dtype: Option<&'static str>,
    /// Tokens of prompt and answer together, at most.
    pub max_len: Option<&'static str>,
}

impl LaunchFlags {
    /// No arguments at all.
    pub const NONE: LaunchFlags = LaunchFlags { block_size: None, ranks: None, dtype: None, max_len: None };
}
