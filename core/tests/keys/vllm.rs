//! vLLM's vectors: roots, chains, preimages and the extra keys of events.

use crate::file::{File, Outcome, hex, hex32, texts, u32s, u64s};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use warmpath_core::block::{BlockSize, Digest};
use warmpath_core::engine::{
    Algo, BlockExtra, Contract, ContractFault, Decline, Engine, Extras, Lora, Media, Scratch, Seed, Terms,
    Version,
};

const CASE: &[&str] = &[
    "id",
    "algo",
    "PYTHONHASHSEED",
    "none_hash",
    "block_size",
    "token_ids",
    "lora",
    "cache_salt",
    "mm",
    "prompt_embeds",
    "num_hash_lookahead_tokens",
    "hashes",
    "event_u64",
    "first_blocks",
    "event_extra_keys",
];
const ROOT: &[&str] = &[
    "algo",
    "PYTHONHASHSEED",
    "seed_len",
    "deterministic",
    "none_hash",
    "preimage_hex",
    "default_seed",
    "remark",
];
const PREIMAGE: &[&str] = &["parent", "token_ids", "extra_keys", "cbor_hex", "sha256_cbor"];

#[test]
fn vectors_of_0_23() {
    check_file(File::open("vllm-0.23.0-hashes.json"), 153, 8);
}

#[test]
fn vectors_of_0_31() {
    check_file(File::open("vllm-0.31.0-hashes.json"), 155, 8);
}

#[test]
fn vectors_of_0_33() {
    check_file(File::open("vllm-0.33.0-hashes.json"), 167, 8);
}

fn check_file(file: File, checked: usize, declined: usize) {
    file.cases("none_hash", ROOT, |case| check_root(file.version(), case));
    file.cases("cases", CASE, |case| check_case(file.version(), case));
    file.cases("cbor_preimages", PREIMAGE, check_preimage);
    check_coarse(&file);
    check_group(&file);
    file.finish(checked, declined);
}

fn seed(case: &Value) -> Seed<'_> {
    case["PYTHONHASHSEED"].as_str().map_or(Seed::Unset, Seed::Given)
}

pub fn terms<'a>(version: &str, case: &'a Value, block_size: u64) -> Terms<'a> {
    Terms {
        version: Version::read(version),
        seed: seed(case),
        long_seed: true,
        lookahead: case["num_hash_lookahead_tokens"].as_u64().unwrap_or(0) as u16,
        ..Terms::plain(
            Algo::from_name(case["algo"].as_str().unwrap()).unwrap(),
            BlockSize::new(block_size).unwrap(),
        )
    }
}

fn root(contract: &Contract) -> Digest {
    contract.start(&BlockExtra::default()).unwrap().digest
}

/// The root of each seed; what is random in the engine is refused here.
fn check_root(version: &str, case: &Value) -> Outcome {
    let terms = terms(version, case, 16);
    let contract = Engine::Vllm.contract(&terms);
    if case["deterministic"] == false {
        assert_eq!(contract.map(|c| c.algo()).unwrap_err(), ContractFault::SeedUnset, "{case}");
        return Outcome::Checked;
    }
    assert_eq!(root(&contract.unwrap()).as_bytes(), hex(&case["none_hash"]), "{case}");
    let strict = Engine::Vllm.contract(&Terms { long_seed: false, ..terms });
    assert_eq!(strict.is_err(), case["seed_len"].as_u64().unwrap_or(0) > 23, "{case}");
    Outcome::Checked
}

/// What a case holds beside tokens, borrowed for [`Extras`].
struct Carried<'a> {
    lora: Option<Lora<'a>>,
    media: Vec<Media<'a>>,
    salt: Option<&'a str>,
    embeds: Vec<[u8; 32]>,
}

impl<'a> Carried<'a> {
    fn of(case: &'a Value) -> Carried<'a> {
        let lora = case
            .get("lora")
            .map(|lora| Lora { name: lora["name"].as_str().unwrap(), path: lora["path"].as_str() });
        let media = case["mm"].as_array().into_iter().flatten().map(|item| Media {
            identifier: item["identifier"].as_str().unwrap(),
            offset: item["offset"].as_i64().unwrap(),
            length: item["length"].as_u64().unwrap() as u32,
        });
        let embeds = embeds(case);
        Carried { lora, media: media.collect(), salt: case["cache_salt"].as_str(), embeds }
    }

    fn extras(&self) -> Extras<'_> {
        Extras {
            lora: self.lora,
            media: &self.media,
            salt: self.salt,
            embeds: &self.embeds,
            ..Extras::default()
        }
    }
}

/// SHA-256 of the raw tensor bytes of each block's rows.
fn embeds(case: &Value) -> Vec<[u8; 32]> {
    let Some(tensor) = case.get("prompt_embeds") else { return Vec::new() };
    assert_eq!(tensor["dtype"], "torch.float32");
    let row = tensor["shape"][1].as_u64().unwrap() * case["block_size"].as_u64().unwrap();
    let values: Vec<f32> =
        tensor["values"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect();
    let bytes = |rows: &[f32]| rows.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    values.chunks(row as usize).map(|rows| Sha256::digest(bytes(rows)).into()).collect()
}

fn check_case(version: &str, case: &Value) -> Outcome {
    let contract =
        Engine::Vllm.contract(&terms(version, case, case["block_size"].as_u64().unwrap())).unwrap();
    assert_eq!(root(&contract).as_bytes(), hex(&case["none_hash"]), "{}", case["id"]);
    let carried = Carried::of(case);
    let (extras, tokens, mut scratch) = (carried.extras(), u32s(&case["token_ids"]), Scratch::default());
    let (mut digests, mut keys) = (Vec::new(), Vec::new());
    match contract.chain(&extras, &mut scratch) {
        Err(reason) => {
            let pickled = case["algo"] == "sha256" || case["algo"] == "xxhash";
            assert!(pickled && case["mm"].is_array(), "only pickled media may be declined: {}", case["id"]);
            assert_eq!(reason, Decline::MediaPickled);
            return Outcome::Declined(reason);
        }
        Ok(mut chain) => chain.feed(&tokens, |key, digest| {
            keys.push(key.0);
            digests.push(digest.to_string());
        }),
    }
    assert_eq!(digests, texts(&case["hashes"]), "{} {}", case["algo"], case["id"]);
    assert_eq!(keys, u64s(&case["event_u64"]), "{} {}", case["algo"], case["id"]);
    check_preimages(&contract, &extras, &tokens, case);
    check_event_keys(&contract, &tokens, case);
    Outcome::Checked
}

/// The very bytes that the engine hashed for the first blocks.
fn check_preimages(contract: &Contract, extras: &Extras<'_>, tokens: &[u32], case: &Value) {
    let (step, mut scratch) = (contract.block_size().tokens(), Scratch::default());
    let mut parent = root(contract);
    for (index, block) in case["first_blocks"].as_array().into_iter().flatten().enumerate() {
        let extra = extras.of_block(index as u64, step);
        let tokens = &tokens[index * step..][..step + contract.overhang()];
        let preimage = contract.preimage(&parent, tokens, &extra, &mut scratch).to_vec();
        assert_eq!(preimage, hex(&block["preimage_hex"]), "{} {} block {index}", case["algo"], case["id"]);
        parent = contract.digest(&parent, tokens, &extra, &mut scratch);
    }
}

/// The same digests from what an event would say of each block.
fn check_event_keys(contract: &Contract, tokens: &[u32], case: &Value) {
    let Some(event_keys) = case.get("event_extra_keys") else { return };
    let (step, mut scratch, mut parent) =
        (contract.block_size().tokens(), Scratch::default(), root(contract));
    for (index, digest) in texts(&case["hashes"]).into_iter().enumerate() {
        let keys = EventKeys::of(&event_keys[index], &case["lora"]);
        let extra = keys.extra();
        contract.start(&extra).unwrap();
        let tokens = &tokens[index * step..][..step + contract.overhang()];
        parent = contract.digest(&parent, tokens, &extra, &mut scratch);
        assert_eq!(parent.to_string(), digest, "{} {} block {index}", case["algo"], case["id"]);
    }
}

/// One block's `extra_keys` of an event: untagged, told apart by place and kind.
pub struct EventKeys<'a> {
    lora: Option<Lora<'a>>,
    media: Vec<Media<'a>>,
    salt: Option<&'a str>,
    embeds: Option<[u8; 32]>,
}

impl<'a> EventKeys<'a> {
    /// `adapter` has the `name` and `path` of the adapter, or is null.
    pub fn of(keys: &'a Value, adapter: &'a Value) -> EventKeys<'a> {
        let mut own = EventKeys { lora: None, media: Vec::new(), salt: None, embeds: None };
        for (place, key) in keys.as_array().into_iter().flatten().enumerate() {
            match key {
                Value::String(name) if place == 0 && adapter["name"].is_string() => {
                    assert_eq!(adapter["name"], *name);
                    own.lora = Some(Lora { name, path: adapter["path"].as_str() });
                }
                Value::String(salt) => own.salt = Some(salt),
                Value::Array(item) => own.media.push(Media {
                    identifier: item[0].as_str().unwrap(),
                    offset: item[1].as_i64().unwrap(),
                    length: 0,
                }),
                bytes => own.embeds = Some(hex32(&bytes["bytes"])),
            }
        }
        own
    }

    pub fn extra(&self) -> BlockExtra<'_> {
        BlockExtra {
            lora: self.lora,
            media: &self.media,
            salt: self.salt,
            embeds: self.embeds.as_ref(),
            ..BlockExtra::default()
        }
    }
}

/// CBOR oddities: given in the tagged form whatever the file's version.
fn check_preimage(case: &Value) -> Outcome {
    let tokens = u32s(&case["token_ids"]);
    let terms = Terms {
        version: Some(Version::new(0, 31, 0)),
        seed: Seed::Given("0"),
        ..Terms::plain(Algo::Sha256Cbor, BlockSize::new(tokens.len() as u64).unwrap())
    };
    let contract = Engine::Vllm.contract(&terms).unwrap();
    let extra = BlockExtra { salt: case["extra_keys"][0][1].as_str(), ..BlockExtra::default() };
    let (parent, mut scratch) = (Digest::of_32(hex32(&case["parent"])), Scratch::default());
    assert_eq!(contract.preimage(&parent, &tokens, &extra, &mut scratch), hex(&case["cbor_hex"]));
    assert_eq!(contract.digest(&parent, &tokens, &extra, &mut scratch).to_string(), case["sha256_cbor"]);
    Outcome::Checked
}

/// A coarser group's block has the key of the last fine block inside it: from 0.24 by having its digest, in
/// 0.23 by ending with it.
fn check_coarse(file: &File) {
    let view = file.take("coarse_view");
    let fine_size = view["hash_block_size"].as_u64().unwrap();
    let contract = Engine::Vllm.contract(&terms(file.version(), view, fine_size)).unwrap();
    let (mut fine, mut scratch, extras) = (Vec::new(), Scratch::default(), Extras::default());
    let mut chain = contract.chain(&extras, &mut scratch).unwrap();
    chain.feed(&u32s(&view["token_ids"]), |_, digest| fine.push(digest.to_string()));
    assert_eq!(fine, texts(&view["fine"]));
    let per_coarse = (view["target_block_size"].as_u64().unwrap() / fine_size) as usize;
    for (index, coarse) in texts(&view["coarse"]).into_iter().enumerate() {
        let last = &fine[(index + 1) * per_coarse - 1];
        assert!(coarse.ends_with(last.as_str()));
        assert_eq!(coarse == last, file.version() != "0.23.0");
    }
}

/// Inside the engine a group's number stands behind the digest; no event shows it.
fn check_group(file: &File) {
    let key = file.take("group_key");
    let packed = format!("{}{:08x}", key["block_hash"].as_str().unwrap(), key["group_id"].as_u64().unwrap());
    assert_eq!(key["packed"], packed);
}
