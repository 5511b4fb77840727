//! The templates whose tools and keyword arguments are rendered, each pinned by its SHA-256: what `tests/real`
//! proved equal to Jinja2 over hundreds of conversations with tools, calls, results and arguments. Owns the list;
//! must hold nothing that no test proves.

use sha2::{Digest, Sha256};
use warmpath_parser::json::Kind;

/// What was proven of one template.
#[derive(Debug, PartialEq, Eq)]
pub struct Verified {
    /// Its file in `tests/templates`, where its origin is told.
    pub name: &'static str,
    /// SHA-256 of its text, without the one line feed at its end that Jinja2 drops.
    pub sha256: &'static str,
    /// Whether definitions of tools, calls of them and their results are rendered alike.
    pub tools: bool,
    /// The keyword arguments that are rendered alike.
    pub kwargs: &'static [Kwarg],
}

/// A keyword argument of a template. Only these kinds of values were compared: with others Python may differ.
#[derive(Debug, PartialEq, Eq)]
pub struct Kwarg {
    /// Its name.
    pub name: &'static str,
    /// Whether it is a text; else it is true, false or null.
    pub is_text: bool,
}

impl Kwarg {
    const fn switch(name: &'static str) -> Kwarg {
        Kwarg { name, is_text: false }
    }

    const fn text(name: &'static str) -> Kwarg {
        Kwarg { name, is_text: true }
    }

    /// Whether values of this kind were compared.
    pub fn takes(&self, kind: Kind) -> bool {
        match kind {
            Kind::String { .. } => self.is_text,
            Kind::True | Kind::False | Kind::Null => !self.is_text,
            _ => false,
        }
    }
}

/// All of them.
pub const VERIFIED: &[Verified] = &[
    Verified {
        name: "qwen3",
        sha256: "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5",
        tools: true,
        kwargs: &[Kwarg::switch("enable_thinking")],
    },
    Verified {
        name: "qwen3_later",
        sha256: "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8",
        tools: true,
        kwargs: &[Kwarg::switch("enable_thinking")],
    },
    Verified {
        name: "qwen3_5",
        sha256: "273d8e0e683b885071fb17e08d71e5f2a5ddfb5309756181681de4f5a1822d80",
        tools: true,
        kwargs: &[Kwarg::switch("enable_thinking"), Kwarg::switch("add_vision_id")],
    },
    Verified {
        name: "tool_qwen3coder",
        sha256: "32bf2564d2245b98298677d3ac2332ab50bc3279740c13c3974689464b38aa3c",
        tools: true,
        kwargs: &[],
    },
    Verified {
        name: "deepseek_v3",
        sha256: "3b8267e54b67df6500f231ffa969955cc9d26b3444a291ced4eb96ca7d3ca1ea",
        tools: true,
        kwargs: &[],
    },
    Verified {
        name: "tool_deepseekr1",
        sha256: "fe055ac311d9124c659636da3104f3dd39a19f36b8c2cc11b9bc0affb4e052f5",
        tools: true,
        kwargs: &[],
    },
    Verified {
        name: "tool_deepseekv3",
        sha256: "eedfb4650069b8cc17d2cfb4230835edaf51539e60e8b051b34d57a35e586dd3",
        tools: true,
        kwargs: &[],
    },
    Verified {
        name: "tool_deepseekv31",
        sha256: "f5c1dcdcf0431551c71597b6d60a3131bfdb89e43744e2445d4f12e7b076a6b1",
        tools: true,
        kwargs: &[Kwarg::switch("thinking")],
    },
    Verified {
        name: "tool_llama3_1_json",
        sha256: "7cde5c44cbbfb6963beb0554342dedfec57a095e5ff380281f80eb7496add100",
        tools: true,
        kwargs: &[Kwarg::text("date_string"), Kwarg::switch("tools_in_user_message")],
    },
    Verified {
        name: "tool_llama3_2_json",
        sha256: "191026db315deae9504a9bb43505edd1fa29594e3d4f7baed65293ca155049da",
        tools: true,
        kwargs: &[Kwarg::text("date_string"), Kwarg::switch("tools_in_user_message")],
    },
    Verified {
        name: "tool_llama4_json",
        sha256: "321aca592bf5ed51bd4e2f6d74f23431a1a7631677fb144ca6fbe117ed34e968",
        tools: true,
        kwargs: &[Kwarg::switch("tools_in_user_message")],
    },
    Verified {
        name: "tool_glm4",
        sha256: "5285de9f0d715403262cde328d02ebc56bb572f815d1b41ccc52f1245940dd36",
        tools: true,
        kwargs: &[],
    },
    Verified {
        name: "tool_granite",
        sha256: "ea41f6798ad19c00464424f37ce7ee3ca75f27a8be68ce01955a016fcced0384",
        tools: true,
        kwargs: &[],
    },
];

impl Verified {
    /// What was proven of the template with this text.
    pub fn of(source: &str) -> Option<&'static Verified> {
        let digest = Sha256::digest(source.strip_suffix('\n').unwrap_or(source));
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        VERIFIED.iter().find(|verified| verified.sha256 == digest)
    }
}
