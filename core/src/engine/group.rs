//! The question whether an answer is bound to its request, as an engine answers it. Owns the shape of the question; what
//! is asked and where the answer tells the request's id stands in each engine's file.

use serde_json::Value;

/// A completion of one token that carries an id, and where its answer gives that back.
#[derive(Debug)]
pub struct GroupAsk {
    /// Where it is sent.
    pub path: &'static str,
    /// Its body, for a model and an id. The id is in `X-Request-Id` too.
    pub body: fn(&str, &str) -> Value,
    /// The id of the request that an answer is bound to, if it tells one.
    pub bound_to: fn(&Value) -> Option<&str>,
}
