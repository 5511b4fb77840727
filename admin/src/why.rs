//! Why a request went where it went, as sentences for people. Owns one of cause and cure for each reason; must
//! never be read by a program (there are words for that), nor name an endpoint.

use std::borrow::Cow;
use warmpath_core::decide::Reason;
use warmpath_core::decide::exact::Miss;
use warmpath_core::decline::Decline;
use warmpath_core::engine::Decline as Chain;

/// Why exact routing left a request to the rule's selector, and what would change that.
pub fn missed(miss: Miss) -> Cow<'static, str> {
    match miss {
        Miss::Declined(Decline::Chain(decline)) => declined(decline).into(),
        Miss::Declined(decline) => unproven(decline),
        Miss::Unproven(reason) => format!(
            "not all is proven of the engines that the rule's model profile asks for ({}); {}: `warmpath ctl kv status`",
            reason.word(),
            reason.cure()
        )
        .into(),
        _ => plainly(miss).into(),
    }
}

const fn plainly(miss: Miss) -> &'static str {
    match miss {
        Miss::ModeOff => "the rule does not ask for exact routing; set kvExactMode to 3",
        Miss::Warmup => "kvWarmupSec of the rule has not passed; wait, or set it to 0",
        Miss::Untrusted => {
            "answers of all endpoints contradict what was predicted of them, so that they take requests by load alone; \
             `warmpath ctl kv` names what may be broken"
        }
        Miss::TextEmpty => {
            "there is no prompt to look up: the body was not read, has none, or is over 16 MiB; \
             send the prompt in a JSON body"
        }
        Miss::ModelEmpty => "neither the request nor the rule names a model; set model_name in the rule",
        Miss::Batch => {
            "the prompt is a list of prompts, or not of token ids alone; send one prompt in a request"
        }
        Miss::TooLong => {
            "the prompt is longer than the gateway hashes; it is served, only not by its blocks: \
             shorten what differs from request to request"
        }
        Miss::Unreadable => {
            "a member that is part of the blocks' names (a salt, an adapter) is not text or not of its type; \
             send it as the engine documents it"
        }
        Miss::TokenizerBusy => {
            "tokenization would have had to wait too long; expect it under bursts, raise --token-cores if it lasts"
        }
        Miss::Hashes => {
            "the prompt is shorter than one block, so nothing of it can be cached; \
             nothing to do, unless kvBlockSize is larger than the engine's"
        }
        Miss::Declined(_) | Miss::Unproven(_) => "",
        Miss::NoSignal => "no endpoint has told of any block yet; see `warmpath ctl kv`",
        Miss::Fenced => {
            "all endpoints are fenced, since what they say does not fit the rule; \
             `warmpath ctl kv` lists the findings"
        }
        Miss::NoWorker => {
            "nobody holds the beginning of this prompt; expected for a new one, but if it never changes compare \
             seed, hash, block size and tokenizer of rule and engine (`warmpath ctl kv`)"
        }
        Miss::Shallow => {
            "fewer blocks match than are worth routing by; lower LLB_KV_MIN_MATCH_TOKENS if they are"
        }
        Miss::Excluded => {
            "those that hold its blocks, or all, are down, draining or just failed this request; \
             `warmpath ctl rules get` shows their state"
        }
        Miss::LoadGuard => {
            "the endpoints' loads lie too far apart (LLB_KV_LOADGUARD); unset it to route by blocks even then"
        }
        Miss::Bounded => {
            "all endpoints with its blocks reached their load bound before it was reserved; \
             raise LOXILB_KV_MEAN_LOAD_FACTOR or add endpoints"
        }
    }
}

/// What of a text can't be proven to become the engine's tokens.
fn unproven(decline: Decline) -> Cow<'static, str> {
    let cure = match decline {
        Decline::NoTokenizer => "put its tokenizer.json into tokenizers/MODEL below --config-root",
        Decline::TokenizerLoading => "wait; `warmpath ctl models` shows how far it is",
        Decline::TokenizerFailed => "`warmpath ctl models` says why",
        Decline::NoTemplate => "put its chat_template.jinja beside its tokenizer.json",
        Decline::Clock => {
            "if the engines run in UTC, publish a profile of the model with renderPolicy.clockPolicy utc-date"
        }
        Decline::ToolVersion => "set kvEngineVersion in the rule",
        Decline::ProfileApi => "name it in the profile's supportedApis if it was validated for it",
        _ => "the gateway can't prove what the engine makes of it, so the selector serves it",
    };
    format!("{decline}; {cure}").into()
}

const fn declined(decline: Chain) -> &'static str {
    match decline {
        Chain::VersionUnknown => {
            "how an adapter, media or a salt is hashed depends on the engine's version, which is unknown; \
             set kvEngineVersion in the rule"
        }
        Chain::LoraPathUnknown => {
            "this engine hashes the adapter's path, which is not known here; requests of the base model \
             are routed by their blocks"
        }
        Chain::LoraRandom => {
            "this engine gives each load of an adapter a random name; requests of the base model are routed \
             by their blocks"
        }
        Chain::MediaPickled => {
            "hashes of pickled media depend on the engine's memory; start the engine with a cbor block hash"
        }
        Chain::MediaUnknown => {
            "this engine replaces media tokens by values of its own; requests without media are routed by \
             their blocks"
        }
        Chain::StringsAlike => {
            "pickled hashes of two equal strings depend on the engine's memory; start the engine with a cbor \
             block hash, or make salt and adapter differ"
        }
        Chain::LookaheadMedia => {
            "media and embeddings under look-ahead hashing are not known; requests without them are routed by \
             their blocks"
        }
        Chain::TooLong => "a block's extra keys are longer than 64 KiB; shorten salt or identifiers",
        Chain::NamespaceUnseen => {
            "this engine's events don't tell namespaces apart; send the request without salt and adapter to \
             route it by its blocks"
        }
        Chain::TokensOnly => {
            "the rule names blocks by their tokens alone; set kvHashAlgo to the engine's own hash to route \
             requests with media, salt or adapter"
        }
    }
}

/// What a reason means, of a request without exact routing.
pub const fn selected(reason: Reason) -> &'static str {
    match reason {
        Reason::RoundRobin => "it was this endpoint's turn",
        Reason::Weighted => "it was this endpoint's turn by weight",
        Reason::LeastLoad => "this endpoint had the fewest requests in flight",
        Reason::HashHome => "the hash gives the prompt's beginning, or the session, to this endpoint",
        Reason::HashNext => {
            "the endpoint that the hash gives the prompt's beginning, or the session, to was not available; \
             this is the next"
        }
        Reason::HashBounded => {
            "the endpoint that the hash gives the prompt's beginning, or the session, to was at its load bound; \
             this one relieves it"
        }
        Reason::NoPrefix => {
            "the request has neither a beginning of a prompt nor a session to hash; it was this endpoint's turn"
        }
        Reason::ClientHash => {
            "the hash of the client's address and port gives its connection to this endpoint"
        }
        Reason::Session => "the session's earlier requests went to this endpoint",
        Reason::PrefixTrie => "this endpoint was sent the longest beginning of the prompt before",
        Reason::Exact => "this endpoint holds the most of the prompt's leading blocks",
        Reason::ExactPromised => {
            "this endpoint will hold the most of the prompt's leading blocks: \
             more of them are on their way to it than are there"
        }
        Reason::ExactSpill => "an endpoint that holds more has as much load as it may, or costs more",
        Reason::ExactRelief => {
            "the endpoint that holds the most carries its share of the whole pool's load; this one relieves it"
        }
        Reason::ExactSeed => {
            "this endpoint is cold, and each so many-th hit is for such ones (LOXILB_KV_COLDSTART_SEED_N)"
        }
    }
}

/// Why the endpoint with the most overlap was passed over for one that was chosen by `reason`. `full`: it had the
/// load that it may carry; `raced`: places of the list were refused when the request was to be reserved.
pub const fn passed_over(reason: Reason, full: bool, raced: bool) -> &'static str {
    match reason {
        Reason::ExactSeed => "its place was given to a cold endpoint",
        Reason::ExactRelief => "it carried its share of the whole pool's load",
        _ if full => "it had as much load as it may carry",
        _ if raced => "other requests took its last room first",
        _ => "with its load it would have cost more",
    }
}

/// All misses, for tests.
#[cfg(test)]
pub fn every_miss() -> impl Iterator<Item = Miss> {
    let chain = tests::DECLINES.map(|decline| Miss::Declined(decline.into()));
    let own = Decline::OWN.iter().copied().map(Miss::Declined);
    tests::MISSES.into_iter().chain(chain).chain(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    pub const MISSES: [Miss; 17] = [
        Miss::ModeOff,
        Miss::Warmup,
        Miss::TextEmpty,
        Miss::ModelEmpty,
        Miss::Batch,
        Miss::TooLong,
        Miss::Unreadable,
        Miss::TokenizerBusy,
        Miss::Hashes,
        Miss::NoSignal,
        Miss::Fenced,
        Miss::Untrusted,
        Miss::NoWorker,
        Miss::Shallow,
        Miss::Excluded,
        Miss::LoadGuard,
        Miss::Bounded,
    ];
    pub const DECLINES: [Chain; 10] = [
        Chain::VersionUnknown,
        Chain::LoraPathUnknown,
        Chain::LoraRandom,
        Chain::MediaPickled,
        Chain::MediaUnknown,
        Chain::StringsAlike,
        Chain::LookaheadMedia,
        Chain::TooLong,
        Chain::NamespaceUnseen,
        Chain::TokensOnly,
    ];

    /// That none is left out, the compiler sees; that each is its own, and has a cure, this does.
    #[test]
    fn every_miss_has_its_own_sentence_of_cause_and_cure() {
        let sentences: BTreeSet<Cow<'_, str>> = every_miss().map(missed).collect();
        assert_eq!(sentences.len(), 27 + Decline::OWN.len());
        for sentence in sentences {
            assert!(
                sentence.contains("; ") && !sentence.ends_with('.') && sentence.len() < 220,
                "{sentence}"
            );
            assert!(!sentence.contains("  "), "{sentence}");
        }
    }

    #[test]
    fn every_reason_has_its_own_sentence() {
        let sentences: BTreeSet<&str> = Reason::ALL.into_iter().map(selected).collect();
        assert_eq!(sentences.len(), Reason::ALL.len());
    }
}
