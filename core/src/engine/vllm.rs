//! vLLM's block hashes, 0.23 to 0.33: a block is `hash((parent, tokens, extra))` over CBOR or pickle, from a
//! root that is the hash of the seed. Owns which version hashes what.

mod attest;
mod launch;
mod encode;
mod pairing;

use super::answers::Answers;
use super::cbor::Cbor;
use super::contract::{ContractFault, Recipe as AnyRecipe, Terms};
use super::extras::{BlockExtra, Decline};
use super::form::Form;
use super::launch::LaunchFlags;
use super::pickle::{ONE_FRAME, Pickle, WIDEST_TOKEN};
use super::preimage::Preimage;
use super::telemetry::{Capacity, Gauges, Telemetry};
use super::text::{Looped, Named, TextTerms, ToolForm};
use super::{Algo, GroupAsk, Version};
use crate::block::{BlockSize, Digest};
use serde_json::json;

/// What it answers.
pub(super) const ANSWERS: Answers = Answers {
    name: "vllm",
    algorithms,
    // What a rule without an algorithm means: the form that other programs can compute without knowing Python.
    rule_default: Some(Algo::Sha256Cbor),
    // `--prefix-caching-hash-algo` when absent.
    own_default: Some(Algo::Sha256),
    // ZMQ: rank r publishes at the port of its `--kv-events-config` + r.
    event_port: true,
    // Prefill hands over by `kv_transfer_params`.
    bootstrap_port: false,
    // A block may outlive its parent: blocks are freed one by one, in the order of their last use.
    prefix_closed: false,
    // The API server reads `X-data-parallel-rank` and refuses ranks it does not have with 400 (0.32, run).
    takes_rank: true,
    // `--chat-template-content-format auto` (0.32). Harmony for gpt-oss, Mistral's own tokenizer for mistral3, and
    // what `--tokenizer-mode auto` makes of the other architectures (0.23 to 0.33).
    text: TextTerms {
        joiner: "\n",
        looped: Looped::Wrapped,
        encoded: &[
            "gpt_oss", "mistral3", "deepseek_v32", "deepseek_v4", "deepseek_v41", "kimi_k3", "inkling",
        ],
        names: Named::All,
        // `_strip_claude_code_billing_header` (0.32, 0.33).
        cut_header: Some("x-anthropic-billing-header"),
        template_kwargs: true,
        tools,
    },
    pairing: Some(pairing::PAIRING),
    telemetry: Some(Telemetry {
        path: "/metrics",
        read: |page| GAUGES.read(page),
        // One sample a data-parallel rank (0.32, run); they count a request when it is scheduled, preempted ones apart.
        lookups: Some(["vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"]),
    }),
    questions: Some(attest::QUESTIONS),
    // The id of a completion is `cmpl-` and that of its request (0.29).
    group_ask: Some(GroupAsk {
        path: "/v1/completions",
        body: |model, _| json!({"model": model, "prompt": "a", "max_tokens": 1}),
        bound_to: |answer| answer["id"].as_str()?.strip_prefix("cmpl-"),
    }),
    launch: Some(launch::line),
    flags: LaunchFlags {
        block_size: Some("--block-size"),
        ranks: Some("--data-parallel-size"),
        dtype: Some("--dtype"),
        max_len: Some("--max-model-len"),
    },
    family,
    check,
    told,
    recipe,
    ..Answers::SILENT
};

/// As a server says them (0.32, captured), each rank under its label `engine`.
const GAUGES: Gauges = Gauges {
    running: "vllm:num_requests_running",
    waiting: "vllm:num_requests_waiting",
    kv_use: "vllm:kv_cache_usage_perc",
    capacity: Capacity::Label { metric: "vllm:cache_config_info", label: "num_gpu_blocks" },
};

/// From here on an unset seed is a constant for the SHA-256 algorithms; before, and for XXH3, it is random.
const FIXED_ROOT: Version = Version::new(0, 29, 0);

/// What an unset seed is from [`FIXED_ROOT`] on.
const FIXED_SEED: &str = "vllm-none-hash";

/// From here on extra keys carry a tag, and an adapter its path.
const TAGGED: Version = Version::new(0, 31, 0);

/// From here on a hash may cover tokens behind its block.
const LOOKAHEAD: Version = Version::new(0, 33, 0);

/// From here on all four algorithms were verified; earlier (0.17) only the CBOR forms.
const PICKLE_VERIFIED: Version = Version::new(0, 23, 0);

/// The most tokens that a hash may look ahead; drafts are a few tokens long.
const MOST_LOOKAHEAD: u16 = 64;

const ALL: &[Algo] = &[Algo::Sha256, Algo::Sha256Cbor, Algo::Xxhash, Algo::XxhashCbor, Algo::Tokens];
const EARLY: &[Algo] = &[Algo::Sha256Cbor, Algo::XxhashCbor, Algo::Tokens];

/// From here on `ChatCompletionToolsParam` was run, release by release up to 0.33.
const TOOLS: Version = Version::new(0, 23, 0);

/// The request's model fills in what a definition leaves out; all releases that were run do it alike.
fn tools(version: Option<Version>) -> Option<ToolForm> {
    version.is_none_or(|version| version >= TOOLS).then_some(ToolForm::Declared)
}

fn algorithms(version: Option<Version>) -> &'static [Algo] {
    match version {
        Some(version) if version < PICKLE_VERIFIED => EARLY,
        _ => ALL,
    }
}

fn family(version: Version) -> usize {
    [PICKLE_VERIFIED, FIXED_ROOT, TAGGED, LOOKAHEAD].iter().filter(|change| version >= **change).count()
}

fn check(terms: &Terms<'_>) -> Result<(), ContractFault> {
    if terms.bigram || terms.dynamo {
        return Err(ContractFault::Feature { name: "pairs of tokens or the dynamo format", needs: "SGLang" });
    }
    if terms.lookahead > 0 && !terms.since(LOOKAHEAD) {
        return Err(ContractFault::Feature { name: "look-ahead hashing", needs: "vLLM from 0.33" });
    }
    if terms.lookahead > MOST_LOOKAHEAD {
        return Err(ContractFault::Feature { name: "look-ahead hashing", needs: "64 tokens or fewer" });
    }
    Ok(())
}

fn recipe(terms: &Terms<'_>) -> Result<(AnyRecipe, Digest), ContractFault> {
    let (pickled, short) = match terms.algo {
        Algo::Sha256 => (true, false),
        Algo::Xxhash => (true, true),
        Algo::XxhashCbor => (false, true),
        _ => (false, false),
    };
    let fixed = (!short && terms.since(FIXED_ROOT)).then_some(FIXED_SEED);
    let seed = terms.seed.text(fixed, terms.long_seed)?;
    let dialect = terms.version.map_or(Dialect::Unknown, Dialect::of);
    let recipe = Recipe { pickled, short, dialect, block_size: terms.block_size, lookahead: terms.lookahead };
    Ok((AnyRecipe::Vllm(recipe), recipe.root(seed)))
}

fn told(recipe: AnyRecipe, version: Version) -> AnyRecipe {
    match recipe {
        AnyRecipe::Vllm(own) => AnyRecipe::Vllm(Recipe { dialect: Dialect::of(version), ..own }),
        other => other,
    }
}

/// How extra keys are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// The version is unknown.
    Unknown,
    /// 0.23 to 0.30: the bare values.
    Untagged,
    /// From 0.31: tuples of a tag and the values.
    Tagged,
}

impl Dialect {
    fn of(version: Version) -> Dialect {
        if version < TAGGED { Dialect::Untagged } else { Dialect::Tagged }
    }
}

/// One of the four algorithms, as one version applies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recipe {
    pickled: bool,
    short: bool,
    dialect: Dialect,
    block_size: BlockSize,
    lookahead: u16,
}

impl Recipe {
    /// `NONE_HASH`: the parent of every first block.
    fn root(&self, seed: &str) -> Digest {
        let mut out = Preimage::default();
        if self.pickled {
            seed_form::<Pickle>(&mut out, seed);
        } else {
            seed_form::<Cbor>(&mut out, seed);
        }
        self.finish(&mut out)
    }

    /// Whether blocks with `extra` have hashes that can be known.
    pub(super) fn admit(&self, extra: &BlockExtra<'_>) -> Result<(), Decline> {
        let has_media = !extra.media.is_empty();
        let path_missing = extra.lora.is_some_and(|lora| lora.path.is_none());
        let hashed = has_media || extra.lora.is_some() || extra.salt.is_some() || extra.embeds.is_some();
        if extra.namespace.is_some() {
            Err(Decline::NamespaceUnseen)
        } else if hashed && self.dialect == Dialect::Unknown {
            Err(Decline::VersionUnknown)
        } else if self.dialect == Dialect::Tagged && path_missing {
            Err(Decline::LoraPathUnknown)
        } else if self.lookahead > 0 && (has_media || extra.embeds.is_some()) {
            Err(Decline::LookaheadMedia)
        } else if self.pickled {
            self.admit_pickled(extra)
        } else {
            Ok(())
        }
    }

    fn admit_pickled(&self, extra: &BlockExtra<'_>) -> Result<(), Decline> {
        if !extra.media.is_empty() {
            return Err(Decline::MediaPickled);
        }
        let tagged = self.dialect == Dialect::Tagged;
        let lora = extra.lora.map(|lora| lora.name);
        let path = extra.lora.and_then(|lora| lora.path).filter(|_| tagged);
        let tags = [TAG_LORA, TAG_SALT, TAG_EMBEDS].map(|tag| tagged.then_some(tag));
        let strings = [lora, path, extra.salt, tags[0], tags[1], tags[2]];
        let alike = (1..strings.len()).any(|i| strings[i].is_some() && strings[..i].contains(&strings[i]));
        if alike {
            return Err(Decline::StringsAlike);
        }
        let tokens = self.block_size.tokens() + usize::from(self.lookahead);
        let text: usize = [lora, path, extra.salt].iter().flatten().map(|text| text.len()).sum();
        // 256 bytes are more than all that stands around tokens and texts.
        if WIDEST_TOKEN * tokens + text + 256 > ONE_FRAME { Err(Decline::TooLong) } else { Ok(()) }
    }

    /// Replaces the parent `digest` by that of its block. `tokens` are the block's own and the look-ahead tokens
    /// behind them.
    pub(super) fn digest(
        &self,
        digest: &mut Digest,
        tokens: &[u32],
        extra: Option<&BlockExtra<'_>>,
        out: &mut Preimage,
    ) {
        let (block, ahead) = tokens.split_at(self.block_size.tokens().min(tokens.len()));
        if self.pickled {
            self.block_form::<Pickle>(out, digest, block, ahead, extra);
        } else {
            self.block_form::<Cbor>(out, digest, block, ahead, extra);
        }
        *digest = self.finish(out);
    }

    #[inline(always)]
    fn finish(&self, out: &mut Preimage) -> Digest {
        if self.short { out.xxh3_128() } else { out.sha256() }
    }

    /// `(parent, (token, …), extra)`; with look-ahead the third is `(extra, token, …)`.
    #[inline(always)]
    fn block_form<F: Form>(
        &self,
        out: &mut Preimage,
        parent: &Digest,
        block: &[u32],
        ahead: &[u32],
        extra: Option<&BlockExtra<'_>>,
    ) {
        F::begin(out);
        F::open(out, 3);
        F::digest(out, parent);
        F::open(out, block.len());
        F::tokens(out, block);
        F::close(out, block.len());
        if !ahead.is_empty() {
            F::open(out, 1 + ahead.len());
        }
        match extra {
            None => F::none(out),
            Some(extra) => self.extra_form::<F>(out, extra),
        }
        if !ahead.is_empty() {
            F::tokens(out, ahead);
            F::close(out, 1 + ahead.len());
        }
        F::close(out, 3);
        F::end(out);
    }

    /// Adapter, media, salt, embeddings, in this order; `None` when there are none.
    fn extra_form<F: Form>(&self, out: &mut Preimage, extra: &BlockExtra<'_>) {
        let tagged = self.dialect == Dialect::Tagged;
        // Python takes an empty salt for none.
        let salt = extra.salt.filter(|salt| !salt.is_empty());
        let items = usize::from(extra.lora.is_some())
            + extra.media.len()
            + usize::from(salt.is_some())
            + usize::from(extra.embeds.is_some());
        if items == 0 {
            return F::none(out);
        }
        F::open(out, items);
        if let Some(lora) = extra.lora {
            entry::<F>(out, tagged, TAG_LORA, if tagged { 2 } else { 1 }, |out| {
                F::text(out, lora.name);
                if tagged {
                    F::text(out, lora.path.unwrap_or_default());
                }
            });
        }
        for item in extra.media {
            entry::<F>(out, tagged, TAG_MEDIA, 2, |out| {
                F::text(out, item.identifier);
                F::int(out, extra.offset_of(item));
            });
        }
        if let Some(salt) = salt {
            entry::<F>(out, tagged, TAG_SALT, 1, |out| F::text(out, salt));
        }
        if let Some(embeds) = extra.embeds {
            entry::<F>(out, tagged, TAG_EMBEDS, 1, |out| F::bytes(out, embeds));
        }
        F::close(out, items);
    }
}

const TAG_LORA: &str = "lora";
const TAG_MEDIA: &str = "mm";
const TAG_SALT: &str = "cache_salt";
const TAG_EMBEDS: &str = "prompt_embeds";

/// One extra key of `values`: a tagged tuple, or untagged a tuple only if there is more than one value.
fn entry<F: Form>(
    out: &mut Preimage,
    tagged: bool,
    tag: &str,
    values: usize,
    write: impl FnOnce(&mut Preimage),
) {
    let items = values + usize::from(tagged);
    if items > 1 {
        F::open(out, items);
    }
    if tagged {
        F::text(out, tag);
    }
    write(out);
    if items > 1 {
        F::close(out, items);
    }
}

fn seed_form<F: Form>(out: &mut Preimage, seed: &str) {
    F::begin(out);
    F::text(out, seed);
    F::end(out);
}
