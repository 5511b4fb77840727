//! SGLang's page hashes, 0.5.18 to 0.5.23: SHA-256 over the parent's digest and the tokens as little-endian
//! words, without a seed. Owns salts, namespaces and the form of wide ids, by version.

mod attest;
mod launch;
mod pairing;

use super::answers::Answers;
use super::contract::{ContractFault, Recipe as AnyRecipe, Start, Terms};
use super::extras::{BlockExtra, Decline};
use super::launch::LaunchFlags;
use super::preimage::Preimage;
use super::telemetry::{Capacity, Gauges, Telemetry};
use super::text::{Looped, Named, TextTerms, ToolForm};
use super::{Algo, GroupAsk, Version};
use crate::block::{BlockKey, Digest};
use serde_json::json;

/// What it answers.
pub(super) const ANSWERS: Answers = Answers {
    name: "sglang",
    algorithms: |_| ALGORITHMS,
    rule_default: Some(Algo::Sha256Sglang),
    // ZMQ, as vLLM's.
    event_port: true,
    // `disaggregation_bootstrap_port` of the prefill server.
    bootstrap_port: true,
    // The radix tree gives up leaves first, so that what lies before a page is there while the page is.
    prefix_closed: true,
    // The HTTP server reads `X-Data-Parallel-Rank` before the body's `routed_dp_rank` (0.5.23).
    takes_rank: true,
    split_model,
    // The template's own form is asked for; joined by blanks where it takes text (0.5).
    // Harmony for gpt-oss and the encoders of `chat_encoding.py` have no verified counterpart here (0.5.23).
    text: TextTerms {
        joiner: " ",
        looped: Looped::Parts,
        encoded: &["gpt_oss", "mistral3", "deepseek_v4", "deepseek_v41", "kimi_k3", "inkling"],
        // The user's message has a model of its own, without a name.
        names: Named::NotUsers,
        cut_header: None,
        template_kwargs: true,
        tools,
    },
    pairing: Some(pairing::PAIRING),
    telemetry: Some(Telemetry { path: "/metrics", read: |page| GAUGES.read(page), lookups: None }),
    questions: Some(attest::QUESTIONS),
    // `/generate` takes the request's id and gives it back beside the text.
    group_ask: Some(GroupAsk {
        path: "/generate",
        body: |_, id| json!({"text": "a", "rid": id, "sampling_params": {"max_new_tokens": 1}}),
        bound_to: |answer| answer["meta_info"]["id"].as_str(),
    }),
    launch: Some(launch::line),
    probe_folder: "sglang",
    flags: LaunchFlags {
        block_size: Some("--page-size"),
        ranks: Some("--dp-size"),
        dtype: Some("--dtype"),
        max_len: Some("--context-length"),
    },
    family,
    check,
    told,
    recipe: |terms| Ok(recipe(terms)),
    ..Answers::SILENT
};

const ALGORITHMS: &[Algo] = &[Algo::Sha256Sglang, Algo::Tokens];

/// As a server with `--enable-metrics` says them (0.5.23).
const GAUGES: Gauges = Gauges {
    running: "sglang:num_running_reqs",
    waiting: "sglang:num_queue_reqs",
    kv_use: "sglang:token_usage",
    capacity: Capacity::Tokens { tokens: "sglang:max_total_num_tokens", block: "sglang:page_size" },
};

/// The largest page.
const LARGEST_PAGE: usize = 128;

/// From here on events of adapters and of the dynamo format are renamed by their namespace, and ids over 32
/// bits are hashed. Verified at 0.5.23; 0.5.19 has neither, the versions between were not checked.
pub const NAMESPACES: Version = Version::new(0, 5, 23);

/// What the parent of a salted first page is a hash of, with the salt behind it.
const SALT_PREFIX: &[u8] = b"sglang-cache-salt-v1\0";

/// What names a namespace of events.
pub const EVENT_NAMESPACE: &str = "sglang-kv-event-namespace-v1";

/// What names a namespace of the storage tier, which no event carries.
pub const STORAGE_NAMESPACE: &str = "sglang-cache-namespace-v1";

/// What `Tool` and `Function` of the request's model make of a definition; the releases between were not run.
fn tools(version: Option<Version>) -> Option<ToolForm> {
    const STRICT: std::ops::RangeInclusive<Version> = Version::new(0, 5, 18)..=Version::new(0, 5, 19);
    match version? {
        version if STRICT.contains(&version) => Some(ToolForm::Strict),
        version if version >= NAMESPACES => Some(ToolForm::AsSent),
        _ => None,
    }
}

fn family(version: Version) -> usize {
    usize::from(version >= NAMESPACES)
}

/// `BASE:ADAPTER`, cut at the first colon, blanks around both of no meaning; it goes before the body's `lora_path`
/// (the OpenAI routes of 0.5).
fn split_model(model: &str) -> Option<(&str, &str)> {
    let (base, adapter) = model.split_once(':')?;
    Some((base.trim(), adapter.trim())).filter(|(_, adapter)| !adapter.is_empty())
}

fn check(terms: &Terms<'_>) -> Result<(), ContractFault> {
    let tokens = terms.block_size.tokens();
    if tokens > LARGEST_PAGE {
        return Err(ContractFault::BlockSize { tokens, least: 1, most: LARGEST_PAGE });
    }
    if terms.lookahead > 0 {
        return Err(ContractFault::Feature { name: "look-ahead hashing", needs: "vLLM from 0.33" });
    }
    if terms.dynamo && !terms.since(NAMESPACES) {
        return Err(ContractFault::Feature { name: "the dynamo format", needs: "SGLang from 0.5.23" });
    }
    Ok(())
}

/// Also TensorRT-LLM's contract, whose terms have no pairs and no version of SGLang.
pub(super) fn recipe(terms: &Terms<'_>) -> (AnyRecipe, Digest) {
    let own = terms.algo == Algo::Sha256Sglang;
    let recipe = Recipe {
        pairs: terms.bigram,
        salted: own,
        named: own && terms.since(NAMESPACES),
        dynamo: terms.dynamo,
    };
    (AnyRecipe::Sglang(recipe), Digest::NONE)
}

fn told(recipe: AnyRecipe, version: Version) -> AnyRecipe {
    match recipe {
        AnyRecipe::Sglang(own) => {
            AnyRecipe::Sglang(Recipe { named: own.salted && version >= NAMESPACES, ..own })
        }
        other => other,
    }
}

/// How one version names pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recipe {
    /// A unit is a token and the next one (EAGLE).
    pairs: bool,
    /// Salts and adapters are part of the contract at all.
    salted: bool,
    /// The version renames by namespace.
    named: bool,
    /// Every namespace renames, not only an adapter's.
    dynamo: bool,
}

impl Recipe {
    pub(super) fn start(&self, extra: &BlockExtra<'_>) -> Result<Start, Decline> {
        if !self.salted {
            return Err(Decline::TokensOnly);
        }
        if !extra.media.is_empty() || extra.embeds.is_some() {
            return Err(Decline::MediaUnknown);
        }
        if extra.lora.is_some() && extra.namespace.is_none() {
            return Err(Decline::LoraRandom);
        }
        let renamed = self.named && (self.dynamo || extra.lora.is_some());
        if extra.namespace.is_some() && !renamed {
            return Err(Decline::NamespaceUnseen);
        }
        let digest = extra.salt.map_or(Digest::NONE, salted_root);
        let namespace =
            if renamed { namespace_seed(EVENT_NAMESPACE, extra.namespace, extra.salt) } else { None };
        Ok(Start { digest, namespace })
    }

    /// Replaces the parent `digest` by that of its page.
    pub(super) fn digest(&self, digest: &mut Digest, tokens: &[u32], out: &mut Preimage) {
        out.digest(digest);
        if self.pairs {
            tokens.windows(2).for_each(|pair| words(out, pair));
        } else {
            words(out, tokens);
        }
        *digest = out.sha256();
    }
}

/// The key of a page's digest: its first 8 bytes big-endian, renamed by the namespace if there is one.
pub(super) fn key(digest: &Digest, namespace: Option<&[u8; 32]>) -> BlockKey {
    let key = BlockKey(digest.head());
    namespace.map_or(key, |seed| renamed(key, seed))
}

/// The parent of a salted prompt's first page.
pub fn salted_root(salt: &str) -> Digest {
    let mut out = Preimage::default();
    out.put(SALT_PREFIX);
    out.put(salt.as_bytes());
    out.sha256()
}

/// The seed that a namespace renames published values by; `None` for the namespace without a name. `domain` is
/// [`EVENT_NAMESPACE`] or [`STORAGE_NAMESPACE`].
pub fn namespace_seed(domain: &str, extra_key: Option<&str>, salt: Option<&str>) -> Option<[u8; 32]> {
    if extra_key.is_none() && salt.is_none() {
        return None;
    }
    let mut out = Preimage::default();
    out.put(domain.as_bytes());
    for part in [extra_key, salt] {
        match part {
            None => out.byte(0),
            Some(text) => {
                out.byte(1);
                out.put(&(text.len() as u64).to_le_bytes());
                out.put(text.as_bytes());
            }
        }
    }
    out.sha256().as_bytes().try_into().ok()
}

/// What a namespace publishes in place of `key`.
pub fn renamed(key: BlockKey, seed: &[u8; 32]) -> BlockKey {
    let mut out = Preimage::default();
    out.put(seed);
    out.put(&key.0.to_be_bytes());
    BlockKey(out.sha256().head())
}

/// The digest of a page with ids over 32 bits, as media have them; only from [`NAMESPACES`] on. A page whose
/// ids all fit has the usual digest.
pub fn wide_page(parent: &Digest, ids: &[u64]) -> Digest {
    let mut out = Preimage::default();
    out.digest(parent);
    if ids.iter().all(|&id| u32::try_from(id).is_ok()) {
        ids.iter().for_each(|&id| out.put(&(id as u32).to_le_bytes()));
    } else {
        out.byte(0xff);
        ids.iter().for_each(|id| out.put(&id.to_le_bytes()));
    }
    out.sha256()
}

fn words(out: &mut Preimage, tokens: &[u32]) {
    let room = out.room(4 * tokens.len());
    for (word, token) in room.as_chunks_mut::<4>().0.iter_mut().zip(tokens) {
        *word = token.to_le_bytes();
    }
    out.advance(4 * tokens.len());
}
