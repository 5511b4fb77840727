//! From a body to keys, as a whole: templates against Jinja2's texts, cuts against whole texts, turns against
//! chains of whole prompts and whole renderings. Owns no case itself.

mod conversations;
mod cuts;
#[path = "../jinja/mod.rs"]
mod jinja;
mod kinds;
mod loading;
mod rendering;
mod resumed;
#[path = "../texts/mod.rs"]
mod texts;
mod turns;
