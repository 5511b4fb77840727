//! The manifest of a profile: which engine its operator deployed. Owns its members and what they declare of an
//! engine's geometry; must never hold what an engine says of itself.

use super::{ProfileFault, check_id, fault, is_sha256};
use crate::engine::{Engine, LaunchFlags};
use serde::Deserialize;

/// The largest manifest that is read, in bytes.
pub const LARGEST: u64 = 64 << 10;

/// A manifest's document. [`Manifest::check`] says whether it counts.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// The profile it is for.
    pub profile_id: String,
    /// The digest that the engine's image was pulled by: `sha256:` and 64 hexadecimal digits.
    pub image_digest: String,
    /// The engine's version, as it tells it.
    pub engine_version: String,
    /// The revision of the model's repository that the engine serves.
    pub model_revision: Option<String>,
    /// The revision that its tokenizer is from.
    pub tokenizer_revision: Option<String>,
    /// SHA-256 of its chat template.
    pub template_digest: Option<String>,
    /// The arguments that it was started with.
    #[serde(default)]
    pub serve_args: Vec<String>,
}

/// What a manifest's arguments declare of an engine's caches. A member that they leave open is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// Tokens in a block.
    pub block_size: Option<u64>,
    /// Data-parallel ranks.
    pub ranks: Option<u64>,
    /// Type of the model's numbers, as `bfloat16`.
    pub dtype: Option<String>,
    /// Tokens of prompt and answer together, at most.
    pub max_len: Option<u64>,
}

impl Manifest {
    /// Whether each member means something, and it is for the profile `id`.
    pub fn check(&self, id: &str) -> Result<(), ProfileFault> {
        check_id("profileId", &self.profile_id)?;
        if self.profile_id != id {
            let problem = format!("{:?} in the manifest of {id:?}", self.profile_id);
            return fault("profileId", problem, "name the file by the profile it is for");
        }
        if !self.image_digest.strip_prefix("sha256:").is_some_and(is_sha256) {
            let problem = format!("{:?}", self.image_digest);
            return fault("imageDigest", problem, "write sha256: and 64 lower-case hexadecimal digits");
        }
        if self.engine_version.trim().is_empty() {
            return fault("engineVersion", "empty".into(), "write the version as the engine tells it");
        }
        let digest = self.template_digest.as_deref().map(|d| d.strip_prefix("sha256:").unwrap_or(d));
        match digest.filter(|digest| !is_sha256(digest)) {
            Some(digest) => {
                fault("templateDigest", format!("{digest:?}"), "write 64 lower-case hexadecimal digits")
            }
            None => Ok(()),
        }
    }

    /// What its arguments declare, read as `engine` reads them.
    pub fn geometry(&self, engine: Engine) -> Geometry {
        let flags = engine.launch_flags();
        let number = |flag: &str| self.value(flag).and_then(|text| text.parse().ok());
        let LaunchFlags { block_size, ranks, dtype, max_len } = flags;
        Geometry {
            block_size: block_size.and_then(number),
            ranks: ranks.and_then(number),
            dtype: dtype.and_then(|flag| self.value(flag)).map(str::to_string),
            max_len: max_len.and_then(number),
        }
    }

    /// What stands behind a flag, as `--flag value` or `--flag=value`; the last one counts, and `_` is `-`.
    fn value(&self, flag: &str) -> Option<&str> {
        let mut found = None;
        let mut arguments = self.serve_args.iter().map(String::as_str).peekable();
        while let Some(argument) = arguments.next() {
            let (name, joined) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (argument, None),
            };
            if name.starts_with("--") && name.replace('_', "-") == flag {
                found = joined.or_else(|| arguments.next_if(|next| !next.starts_with("--"))).or(found);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(args: &[&str]) -> Manifest {
        Manifest {
            profile_id: "a".into(),
            image_digest: format!("sha256:{}", "0".repeat(64)),
            engine_version: "0.32.0".into(),
            model_revision: None,
            tokenizer_revision: None,
            template_digest: None,
            serve_args: args.iter().map(|arg| arg.to_string()).collect(),
        }
    }

    #[test]
    fn arguments_declare_geometry_in_each_engines_words() {
        let vllm =
            ["--block-size", "16", "--data_parallel_size=2", "--dtype", "bfloat16", "--max-model-len=4096"];
        let of = |block_size, ranks, dtype: Option<&str>, max_len| Geometry {
            block_size,
            ranks,
            dtype: dtype.map(str::to_string),
            max_len,
        };
        let own = manifest(&vllm);
        assert_eq!(own.geometry(Engine::Vllm), of(Some(16), Some(2), Some("bfloat16"), Some(4096)));
        assert_eq!(own.geometry(Engine::Sglang), of(None, None, Some("bfloat16"), None));
        let sglang = manifest(&["--page-size", "64", "--dp-size", "4", "--context-length", "8192"]);
        assert_eq!(sglang.geometry(Engine::Sglang), of(Some(64), Some(4), None, Some(8192)));
        let twice = manifest(&["--block-size", "16", "--block-size", "32", "--enforce-eager"]);
        assert_eq!(twice.geometry(Engine::Vllm).block_size, Some(32), "as argparse takes it");
        let none = manifest(&["--block-size", "--dtype", "auto", "--max-model-len", "many"]);
        assert_eq!(none.geometry(Engine::Vllm), of(None, None, Some("auto"), None));
        assert_eq!(none.geometry(Engine::Llamacpp), Geometry::default());
    }

    #[test]
    fn a_manifest_is_refused_by_member_value_and_cure() {
        assert_eq!(manifest(&[]).check("a"), Ok(()));
        let told = |change: fn(&mut Manifest), id: &str| {
            let mut own = manifest(&[]);
            change(&mut own);
            own.check(id).err().map(|fault| fault.to_string()).unwrap_or_default()
        };
        for (change, id, member) in [
            ((|_| {}) as fn(&mut Manifest), "b", "profileId: \"a\" in the manifest of \"b\""),
            (|m| m.image_digest = "latest".into(), "a", "imageDigest: \"latest\""),
            (|m| m.image_digest = "0".repeat(64), "a", "imageDigest"),
            (|m| m.engine_version = " ".into(), "a", "engineVersion: empty"),
            (|m| m.template_digest = Some("00".into()), "a", "templateDigest: \"00\""),
        ] {
            assert!(told(change, id).contains(member), "{member}: {}", told(change, id));
        }
    }
}
