//! The body of a request, as the client sends it and as each leg must be: one place for what engines compare.

use serde_json::{Map, Value, json};

/// What a client wants to happen to its request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Names the request in every ledger.
    pub tag: String,
    /// What its prompt begins with.
    pub lead: String,
    /// In SGLang's own form.
    pub native: bool,
    /// So many token ids in place of a text.
    pub ids: usize,
    pub stream: bool,
    /// What the first prefill engine does, or with `always` every one.
    pub prefill: String,
    pub always: bool,
    pub decode: String,
    /// What an engine does that serves all of it; empty: it is kind.
    pub whole: String,
    /// Images in it, and what the first encoder does, or with `always` every one.
    pub images: usize,
    pub encode: String,
    /// Bytes of padding.
    pub pad: usize,
    /// Bytes of answer.
    pub out: usize,
    /// Bytes of what prefill hands over.
    pub state: usize,
}

impl Wish {
    pub fn body(&self) -> Value {
        // A text that looks like members must mislead nobody.
        let prompt = format!(
            "{}{} \"max_tokens\":1,\"kv_transfer_params\":{{}},\"bootstrap_room\":7 }}",
            self.lead, self.tag
        );
        let mut body = json!({
            "model": "m",
            "max_tokens": 16,
            "stream": self.stream,
            "user": {
                "tag": self.tag, "lead": self.lead, "ids": self.ids, "native": self.native, "prefill": self.prefill, "always": self.always, "decode": self.decode,
                "out": self.out, "state": self.state, "images": self.images, "encode": self.encode, "whole": self.whole,
            },
            "pad": "p".repeat(self.pad),
        });
        match self.images {
            0 if self.ids > 0 => body["prompt"] = (0..self.ids).collect::<Vec<_>>().into(),
            0 => body[if self.native { "text" } else { "prompt" }] = prompt.into(),
            images => {
                let text = json!({"type": "text", "text": prompt});
                let parts: Vec<Value> =
                    [text].into_iter().chain((0..images).map(|at| self.image(at))).collect();
                body["messages"] = json!([{"role": "user", "content": parts}]);
            }
        }
        body
    }

    /// One of its images.
    pub fn image(&self, at: usize) -> Value {
        json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}-{at}", self.tag)}})
    }

    /// Where it is sent.
    pub fn path(&self) -> &'static str {
        match (self.images, self.native) {
            (_, true) => "/generate",
            (0, false) => "/v1/completions",
            _ => "/v1/chat/completions",
        }
    }

    /// Of a leg's body.
    pub fn of(body: &Value) -> Wish {
        let wish = &body["user"];
        let text = |name: &str| wish[name].as_str().expect("a text").to_owned();
        let number = |name: &str| wish[name].as_u64().expect("a number") as usize;
        Wish {
            tag: text("tag"),
            lead: text("lead"),
            stream: false,
            prefill: text("prefill"),
            always: wish["always"] == true,
            decode: text("decode"),
            pad: body["pad"].as_str().expect("a text").len(),
            out: number("out"),
            state: number("state"),
            images: number("images"),
            ids: number("ids"),
            native: wish["native"] == true,
            encode: text("encode"),
            whole: text("whole"),
        }
    }
}

/// The members of a leg's body that the client's does not have, or has otherwise.
pub fn changed(leg: &Value) -> Map<String, Value> {
    let mut wish = Wish::of(leg);
    wish.stream = false;
    let client = wish.body();
    let differs = |(name, value): &(&String, &Value)| client.get(name.as_str()) != Some(*value);
    let members = leg.as_object().expect("an object");
    let mut changed: Map<String, Value> =
        members.iter().filter(differs).map(|(name, value)| (name.clone(), value.clone())).collect();
    for name in client.as_object().expect("an object").keys().filter(|name| !members.contains_key(*name)) {
        changed.insert(name.clone(), Value::Null);
    }
    changed
}
