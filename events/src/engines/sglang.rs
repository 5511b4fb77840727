//! Where SGLang says what of itself (read at 0.5.18 to 0.5.23). Owns its paths and members.

use super::{Probe, always, json, number, text};
use crate::facts::Facts;
use crate::sources;

pub(super) const PROBES: &[Probe] = &[
    Probe { path: "/server_info", is_needed: always, read: read_info },
    // Its older name.
    Probe { path: "/get_server_info", is_needed: |facts| facts.version.is_none(), read: read_info },
];

fn read_info(body: &[u8], facts: &mut Facts) {
    let info = json(body);
    if !info.is_object() {
        return;
    }
    facts.version = text(&info["version"]);
    facts.models = text(&info["served_model_name"]).map(|name| vec![name]);
    facts.ranks = number(&info["dp_size"]);
    // A page of the tree is `page_size` times the ranks of context parallelism.
    let pages = [&info["kv_events"]["block_size"], &info["page_size"]];
    facts.block_size = pages.into_iter().find_map(number);
    let tokens = number(&info["max_total_num_tokens"]);
    facts.capacity = tokens.zip(facts.block_size).map(|(tokens, page)| tokens.div_ceil(page.max(1)));
    facts.identity = info["startup_time"].as_f64().map(f64::to_bits);
    facts.publishers = Some(sources::sglang(body));
}
