//! The table of members: every name that a rule body may carry, with its schema, default and how much of it
//! is served. The one place where a member is added.

use super::members::Kind::{Address, Flag, Int, List, Object, Strings, Text, Word};
use super::members::Others::{Later, Never};
use super::members::Plain::{self, Absent, Empty, Required};
use super::members::{Kind, Member, here, later, never, read_only, some};
use crate::block::BlockSize;
use crate::engine::Engine;

const NO: Plain = Plain::Flag(false);
const ZERO: Plain = Plain::Int(0);
const BLANK: Plain = Plain::Text("");
const U16: Kind = Int(0, u16::MAX as i64);
const U32: Kind = Int(0, u32::MAX as i64);
const I32: Kind = Int(0, i32::MAX as i64);
const PORT: Kind = Int(1, u16::MAX as i64);
const NAME: Kind = Text(255);
const CEILING: Kind = Int(0, 100_000);
const SELECTORS: &[Plain] = &[
    ZERO,
    Plain::Int(1),
    Plain::Int(2),
    Plain::Int(3),
    Plain::Int(4),
    Plain::Int(8),
    Plain::Int(9),
    Plain::Int(10),
];
const ON_OFF: Kind = Word(&["", "on", "off", "inherit"]);

/// Members of the body itself.
pub(super) const BODY: &[Member] = &[
    here("serviceArguments", Object, Required, "the rule"),
    here("endpoints", List, Required, "whom it balances over, 1 to 256"),
    never("secondaryIPs", List, Empty, "further VIPs of SCTP rules"),
    never("secondaryVIPs", List, Empty, "further VIPs"),
    never("allowedSources", List, Empty, "client address filter"),
    read_only("offload_state", "hardware offload"),
    read_only("hw_pkts", "hardware packet counter"),
    read_only("hw_bytes", "hardware byte counter"),
    read_only("fc_effective", "capacity gate in force"),
];

/// Members of `serviceArguments`.
pub(super) const SERVICE: &[Member] = &[
    here(
        "externalIP",
        Address,
        Required,
        "address that clients connect to; endpoints may be of the other \
        address family, since the relay ends TCP on both sides",
    ),
    never("privateIP", NAME, BLANK, "VIP before a 1:1 NAT"),
    here("port", PORT, Required, "port that clients connect to"),
    here("portMax", U16, ZERO, "end of a port range; only 0 or the value of `port`"),
    some(
        "protocol",
        Word(&["tcp", "udp", "sctp", "icmp"]),
        (&[Plain::Text("tcp")], Never),
        Plain::Text("tcp"),
        "transport of clients",
    ),
    some(
        "sel",
        Int(0, 10),
        (SELECTORS, Never),
        ZERO,
        "selector: 0 round robin, 1 hash of the client's address and port, 2 weighted, 3 sessions, 4 least \
         connections, 8 consistent hash of the prompt's prefix with bounded load, 9 hash of the prefix, 10 as 8 in \
         proportion to weights; 8 to 10 take the session's key where a request has no prompt",
    ),
    some(
        "mode",
        Int(0, 6),
        (&[Plain::Int(4)], Never),
        Plain::Int(4),
        "4 full proxy, the one mode of this gateway",
    ),
    some("security", Int(0, 2), (&[ZERO], Never), ZERO, "TLS: 0 none"),
    here("host", NAME, BLANK, "`Host` of requests, without port, in any case; empty matches any"),
    here("path_prefix", NAME, BLANK, "path of requests, from `/`; empty matches any"),
    here(
        "path_match_mode",
        Word(&["disabled", "prefix", "exact"]),
        Absent,
        "how `path_prefix` is compared: `prefix` by whole segments (the default when a path is given), \
         `exact`, or `disabled` (no path)",
    ),
    here(
        "model_name",
        Text(127),
        BLANK,
        "model that the pool serves, to the letter; empty serves every model without a pool of its own",
    ),
    here("name", NAME, BLANK, "name for people, and for deletion by name"),
    here("id", Text(128), BLANK, "opaque id; made when absent"),
    here("adminStateUp", Flag, Plain::Flag(true), "false: as if the rule were absent"),
    here("projectId", NAME, BLANK, "kept and read back"),
    here("annotations", Strings, Empty, "kept and read back"),
    later("connectionLimit", U32, ZERO, "bound of client connections"),
    never("bgp", Flag, NO, "announce the VIP"),
    here("monitor", Flag, NO, "probe the endpoints actively"),
    never("managed", Flag, NO, "managed by a cluster operator"),
    never("snat", Flag, NO, "source NAT"),
    never("egress", Flag, NO, "egress rule"),
    never("proxyprotocolv2", Flag, NO, "PROXY v2 preface on upstream connections"),
    here(
        "oper",
        Int(0, 2),
        ZERO,
        "what a POST does: 0 creates or replaces the rule; 1 adds these endpoints to it; 2 takes them away, and the \
         rule with its last one. With 1 and 2 nothing else of the body counts but what tells which rule is meant",
    ),
    never("block", U32, ZERO, "rule block"),
    some(
        "probetype",
        Word(&["tcp", "udp", "sctp", "http", "https", "ping", "none"]),
        (&[Plain::Text("tcp"), Plain::Text("http"), Plain::Text("none")], Never),
        Plain::Text("tcp"),
        "how health is asked when `monitor` is true",
    ),
    here("probeport", U16, ZERO, "port that is probed; 0: the endpoint's own"),
    here("probereq", NAME, BLANK, "path of HTTP probes; empty: `urlPath` of the endpoints, else `/`"),
    here("proberesp", NAME, BLANK, "text that the answer to an HTTP probe must contain; empty: any"),
    here("probeTimeout", Int(0, 3600), ZERO, "seconds for one probe and between two; 0: 5"),
    here("probeRetries", Int(0, 100), ZERO, "failed probes in a row that take an endpoint out; 0: 2"),
    here(
        "inactiveTimeOut",
        I32,
        ZERO,
        "seconds between two reads of an answer where `timeoutMemberData` is 0; 0: 300",
    ),
    here("timeoutMemberConnect", U32, ZERO, "milliseconds to connect to an endpoint; 0: 500"),
    here("timeoutMemberData", U32, ZERO, "milliseconds between two reads of an answer; 0: `inactiveTimeOut`"),
    later("timeoutTcpInspect", U32, ZERO, "milliseconds for the first bytes of a client"),
    here(
        "first_byte_timeout_ms",
        U32,
        ZERO,
        "milliseconds from the sent request to the first byte of the answer; 0: 600000 (this gateway's own)",
    ),
    here(
        "retry_before_first_byte",
        Int(0, 1),
        ZERO,
        "tries elsewhere after an endpoint died before its answer",
    ),
    here(
        "half_close",
        Word(&["leave", "serve"]),
        Plain::Text("leave"),
        "a client's FIN after its request: it left, or it still reads (this gateway's own)",
    ),
    never("trace_type", NAME, BLANK, "tracing catalog"),
    some(
        "backend_protocol",
        Word(&["http1", "http2", "both"]),
        (&[Plain::Text("http1")], Never),
        Plain::Text("http1"),
        "protocol towards endpoints",
    ),
    never("vip_qos_policy_id", NAME, BLANK, "QoS policy"),
    never("alpn_protocols", List, Empty, "TLS"),
    never("tls_ciphers", NAME, BLANK, "TLS"),
    never("tls_versions", List, Empty, "TLS"),
    never("hsts_max_age", U32, ZERO, "TLS"),
    never("hsts_include_subdomains", Flag, NO, "TLS"),
    never("hsts_preload", Flag, NO, "TLS"),
    never("backend_ca_cert_id", NAME, BLANK, "TLS"),
    never("backend_client_cert_id", NAME, BLANK, "TLS"),
    never("mtls_frontend", Object, Empty, "TLS"),
    never("mtls_backend", Object, Empty, "TLS"),
    some(
        "sockMapMode",
        Word(&["off", "request", "response", "both"]),
        (&[Plain::Text("off")], Never),
        Plain::Text("off"),
        "kernel socket-to-socket relay",
    ),
    here(
        "sse_mode",
        Flag,
        NO,
        "no bound between the reads of an event stream unless `timeoutMemberData` sets one",
    ),
    here("max_stream_duration_sec", I32, ZERO, "seconds for a whole answer; 0: 86400"),
    later("backend_keepalive_interval_sec", I32, ZERO, "TCP keepalive towards endpoints"),
    here(
        "session_header_name",
        NAME,
        BLANK,
        "where a session's key stands: a header's whole name, `cookie:NAME`, `query:NAME` or `basic-auth` (its user), \
         where that is missing `X-Conversation-ID`, `X-Session-ID` or the body's `user`. A session's requests go to one \
         endpoint while that is healthy, before `sel` is asked (but not with 8 to 10, which hash the key); empty: with \
         `sel` 3 the client's address, else no sessions",
    ),
    here(
        "cb_enable",
        Flag,
        NO,
        "circuit breaker for each endpoint: opened for 30 seconds by 5 attempts without an answer in a row, or \
         `LLB_PD_ORIGIN_ERR_THRESHOLD` answers of 5xx in a row, then closed by one good trial",
    ),
    here(
        "chwbl_prefix_hash_level",
        Int(1, 3),
        Plain::Int(1),
        "which flags may be set: 1: 0-4, 2: and 5, 3: all",
    ),
    here(
        "chwbl_prefix_hash_flags",
        Int(0, 255),
        ZERO,
        "parts of a request that enter the hash, one bit each: 0 LoRA, 1 images, 2 audio, 3 cache_salt, \
         4 tools, 5 session_context, 6 rag_template, 7 rag document ids",
    ),
    here(
        "chwbl_mean_load_factor",
        Int(100, 300),
        Plain::Int(125),
        "percent of the mean load an endpoint may carry",
    ),
    here(
        "chwbl_replication",
        Int(1, 1024),
        Plain::Int(100),
        "points of an endpoint on the ring; with `sel` 10 of all together, shared by weight",
    ),
    here("chwbl_enable_cache_salt", Flag, NO, "sets bit 3 of the flags where they are not given"),
    here(
        "pd_disagg_mode",
        Flag,
        NO,
        "prefill and decode on different endpoints, by their `ep_role`; not for `llamacpp`",
    ),
    here(
        "pd_cache_aware_mode",
        Flag,
        NO,
        "prefill goes where the longest beginning of the prompt went before, as far as the two thresholds let it",
    ),
    here(
        "pd_session_ttl_sec",
        I32,
        Plain::Int(300),
        "seconds that a session is kept without a request; 0: 300",
    ),
    here(
        "pd_cache_threshold",
        Int(0, 100),
        Plain::Int(20),
        "percent of the prompt that must be known for `pd_cache_aware_mode` to decide; 0: 20",
    ),
    here(
        "pd_balance_abs_threshold",
        I32,
        Plain::Int(3),
        "requests in flight that the most and the least loaded endpoint may lie apart for `pd_cache_aware_mode` to \
         decide; 0: 3",
    ),
    some(
        "kvExactMode",
        Int(0, 3),
        (&[ZERO, Plain::Int(1), Plain::Int(3)], Later),
        ZERO,
        "exact routing, by the cache blocks that engines hold: 0 off, 3 over all endpoints of the rule; where \
         it finds nothing, `sel` chooses; 1 over the prefill endpoints of `pd_disagg_mode`; where it finds nothing, \
         the one with fewest requests in flight",
    ),
    here(
        "kvBlockSize",
        Int(1, BlockSize::MOST as i64),
        Absent,
        "tokens in a block, as the engines run; left out: 16, with `trtllm` 32",
    ),
    here(
        "kvHashAlgo",
        Word(&[
            "",
            "sha256",
            "sha256_cbor",
            "xxhash",
            "xxhash_cbor",
            "sha256_sglang",
            "blockhash_trtllm",
            "tokens",
        ]),
        BLANK,
        "how blocks are named: the engines' own hash (`vllm`: sha256, sha256_cbor, xxhash, xxhash_cbor; \
         `sglang`: sha256_sglang; `trtllm`: blockhash_trtllm), or `tokens`, this gateway's own names, which need \
         no seed; empty: sha256_cbor, sha256_sglang, blockhash_trtllm",
    ),
    here(
        "kvZmqPort",
        U16,
        Plain::Int(5557),
        "where engines publish events, rank r at this port + r; 0: 5557; not for `trtllm`",
    ),
    here(
        "kvReplayPort",
        U16,
        ZERO,
        "where engines replay events, rank r at this port + r; 0: as the engine \
         tells, if it does (this gateway's own)",
    ),
    here(
        "kvZmqBind",
        Flag,
        NO,
        "the engines connect to these ports of the gateway, instead of the other way \
         round; not for `trtllm` (this gateway's own)",
    ),
    here("kvWarmupSec", I32, Plain::Int(30), "seconds after coming into force without exact routing"),
    here(
        "kvEngineType",
        Word(Engine::WORDS),
        Plain::Text("vllm"),
        "kind of the engines; empty: vllm; can't be changed while the rule exists; exact routing is not for \
         `llamacpp`, which tells nothing of its cache",
    ),
    here(
        "kvEngineVersion",
        Text(64),
        BLANK,
        "version of the engines, as 0.28.0; without it as they tell it, if all tell the same. What depends on it is \
         left to `sel` as long as it is not known (this gateway's own)",
    ),
    here("kvDpRankCount", Int(1, 8), Plain::Int(1), "data-parallel ranks of each endpoint; not for `trtllm`"),
    here(
        "kvRankMode",
        Word(&["pin", "union"]),
        Plain::Text("pin"),
        "`pin`: a rank is chosen, and the request \
         sent to it where the engine takes one; `union`: an endpoint is chosen by what any of its ranks holds \
         (this gateway's own)",
    ),
    here(
        "explain_header",
        Word(&["off", "id", "full"]),
        Plain::Text("off"),
        "what `X-Warmpath-Receipt` of an \
         answer tells of its way: nothing, the receipt's id, all (this gateway's own)",
    ),
    here(
        "pdBootstrapPort",
        U16,
        ZERO,
        "where decode engines meet prefill engines; 0: 8998; only with `pd_disagg_mode`, and `sglang` or \
         `pd_connector` mooncake",
    ),
    here(
        "pd_connector",
        Word(&["", "nixl", "mooncake"]),
        BLANK,
        "by which means vLLM's prefill and decode engines transfer, as their `kv_connector`: nixl for `NixlConnector` and \
         those that answer where blocks are, mooncake for `MooncakeConnector`; empty: nixl; only with `pd_disagg_mode` and \
         `vllm` (this gateway's own)",
    ),
    here(
        "kvExactApiMode",
        Word(&["", "completions", "chat", "both"]),
        BLANK,
        "which requests are routed by blocks: `completions` or `chat` alone, or `both`; empty: what the profile \
         supports, without one both; can't be changed while the rule exists",
    ),
    here(
        "kvModelProfile",
        Text(127),
        BLANK,
        "id of the profile in `kvprofiles/` that pins tokenizer and template: the rule is routed by blocks only while \
         that is proven against its engines; can be attached to a rule once, then not be changed while the rule exists",
    ),
    some(
        "api_key_auth",
        Word(&["", "disabled", "required", "jwt", "apikey-or-jwt"]),
        (&[BLANK, Plain::Text("disabled")], Never),
        BLANK,
        "who may use the rule",
    ),
    never("jwt_auth_profile", Text(63), BLANK, "who may use the rule"),
    here(
        "fc_mode",
        Word(&["", "off", "observe", "enforce", "inherit"]),
        Plain::Text("inherit"),
        "capacity gate before the engines: `enforce` holds back and refuses, `observe` only counts what it would \
         do; `inherit` and empty: as `LLB_FC_MODE`, else off. What the environment says of the gate is for rules \
         with `sse_mode` or `pd_disagg_mode`, and those that set this",
    ),
    here(
        "fc_max_outstanding",
        CEILING,
        ZERO,
        "requests that the service may have at its engines; 0: as `LLB_FC_MAX_OUTSTANDING`, else unbounded",
    ),
    here(
        "fc_ep_max_inflight",
        CEILING,
        ZERO,
        "requests that one endpoint may have of all rules; 0: as `LLB_FC_EP_MAX_INFLIGHT`, else unbounded",
    ),
    here(
        "fc_prefill_max_inflight",
        CEILING,
        ZERO,
        "requests that one prefill endpoint may have; 0: as `LLB_FC_PREFILL_MAX_INFLIGHT`, else as any endpoint",
    ),
    here(
        "fc_decode_max_inflight",
        CEILING,
        ZERO,
        "requests that one decode endpoint may have; 0: as `LLB_FC_DECODE_MAX_INFLIGHT`, else as any endpoint",
    ),
    here(
        "fc_max_queue_depth",
        Int(0, 65_536),
        ZERO,
        "requests that may wait for their turn, in the order they came; 0: as `LLB_FC_MAX_QUEUE_DEPTH`, else none",
    ),
    here(
        "fc_max_queue_wait_ms",
        Int(0, 3_600_000),
        ZERO,
        "milliseconds that a request waits at most, then 504; left out: as `LLB_FC_MAX_QUEUE_WAIT_MS`, else 5000",
    ),
    here(
        "fc_adaptive",
        ON_OFF,
        Plain::Text("inherit"),
        "`on`: each second the ceiling falls by a fifth, down to a quarter, while requests wait within the engines \
         or first bytes take longer than `fc_ttft_target_ms`, and rises by one otherwise; `inherit`: as \
         `LLB_FC_ADAPTIVE`, else off",
    ),
    here(
        "fc_ttft_target_ms",
        I32,
        ZERO,
        "milliseconds to the first byte that an adaptive ceiling aims at; 0: it looks at the engines' queues alone",
    ),
    here(
        "fc_telemetry_stale_ms",
        I32,
        Plain::Int(30_000),
        "milliseconds after which what an engine told of its load says nothing any more; 0: 30000",
    ),
    here(
        "fc_warmup_ms",
        I32,
        ZERO,
        "milliseconds in which the share of an endpoint that comes up grows from a quarter to all; 0: as \
         `LLB_FC_WARMUP_MS`, else at once",
    ),
    here(
        "fc_tenant_max_share_pct",
        Int(0, 100),
        ZERO,
        "percent of the ceiling that one tenant may have, at the engines or waiting; a tenant is whoever sends the \
         same `X-Api-Key`, else the same `Authorization`, else from the same address; 0: as \
         `LLB_FC_TENANT_MAX_SHARE_PCT`, else all",
    ),
    here(
        "fc_fair",
        Word(&["", "on", "off"]),
        BLANK,
        "`on`: those that wait are served fairly by tenant (as for `fc_tenant_max_share_pct`), the tenant first that was \
         served the least work while others waited, and in the order they came within a tenant; work is a token for each \
         4 bytes of a request and of a whole answer, and for each 256 of a stream",
    ),
    here(
        "fc_expose_headers",
        Word(&["", "on", "off"]),
        BLANK,
        "`on`: refusals carry `X-Loxilb-Admission-Inflight`, `-Queued` and `-Limit`; empty: as \
         `LLB_FC_EXPOSE_HEADERS`, else off",
    ),
    read_only("offload_state", "hardware offload"),
    read_only("hw_pkts", "hardware packet counter"),
    read_only("hw_bytes", "hardware byte counter"),
    read_only("fc_effective", "capacity gate in force"),
];

/// Members of one of `endpoints`.
pub(super) const ENDPOINT: &[Member] = &[
    here("endpointIP", Address, Required, "address of the engine"),
    here("targetPort", PORT, Required, "port of the engine"),
    here("weight", U16, Plain::Int(1), "share under selector 2; 0 drains: no new request under any selector"),
    here("backup", Flag, NO, "used only while no other endpoint is available"),
    here(
        "ep_role",
        Int(0, 3),
        ZERO,
        "with `pd_disagg_mode`: 1 prefill, 2 decode, 3 encodes media for prefill (vLLM, SGLang), 0 takes whole requests \
         where prefill or decode have no healthy endpoint",
    ),
    here(
        "nixl_port",
        U16,
        ZERO,
        "side channel of vLLM's transfer, which the `X-Request-Id` of a pair names; 0: `targetPort`",
    ),
    here(
        "kv_engine_id",
        NAME,
        BLANK,
        "`engine_id` of a prefill engine's `--kv-transfer-config`, which decode asks for; needed with `pd_connector` \
         mooncake (this gateway's own)",
    ),
    here("subnetId", NAME, BLANK, "kept and read back"),
    here("monitorAddress", NAME, BLANK, "address that is probed; only empty or the value of `endpointIP`"),
    some(
        "httpMethod",
        Word(&["", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "OPTIONS", "PATCH", "CONNECT"]),
        (&[Plain::Text("GET"), BLANK], Never),
        Plain::Text("GET"),
        "method of HTTP probes",
    ),
    here("urlPath", NAME, BLANK, "path of HTTP probes where `probereq` is empty; alike for all endpoints"),
    here(
        "expectedCodes",
        NAME,
        Plain::Text("200"),
        "statuses of a good HTTP probe: `200`, `200,202` or `200-204`; alike for all endpoints",
    ),
    some(
        "httpVersion",
        Word(&["", "1.0", "1.1"]),
        (&[Plain::Text("1.1"), BLANK], Never),
        Plain::Text("1.1"),
        "version of HTTP probes",
    ),
    later("domainName", NAME, BLANK, "`Host` of HTTP probes"),
    read_only("state", "health"),
    read_only("counter", "traffic"),
];
