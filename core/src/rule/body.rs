//! From a rule body (JSON) to a [`Rule`](super::Rule). Owns the table of members; must never accept a body in part.
