//! One body to its prompt's token ids, for who looks into a single request and has time. Must never be on the way
//! of requests: it peeks anew, keeps no checkpoint and allocates.

use super::{Api, Decline, Model};
use crate::template::Date;
use warmpath_parser::json::{self, JsonLimits, Members};

impl Model {
    /// The ids that the engine makes of the prompt of `body`, or why they can't be told. `today` is for templates
    /// that print the date.
    pub fn token_ids(&self, api: Api, body: &[u8], today: Option<Date>) -> Result<Vec<u32>, Decline> {
        let mut members = Members::new();
        json::peek(body, &mut members, JsonLimits::default()).map_err(|_| Decline::NoPrompt)?;
        // What an engine makes of the definitions of tools is its rule's to say, and none is asked here.
        let prompt = self.read(api, body, &members, today, None)?;
        self.ids(&prompt)
    }
}
