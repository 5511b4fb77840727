//! A front that gives a simulated engine a real tokenizer: prompts in text go on as the token ids that the reference
//! tokenizer makes of them, everything else as it came. Owns one connection a request, as `doctor` opens them.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use warmpath_prompt::Tokenizer;
use warmpath_prompt::tokenizer::{Choice, Recent};

pub const TINY: &[u8] = include_bytes!("../../core/prompt/tests/tokenizers/tiny.json");

/// Listens until the process ends; requests go to `engine`. A chat is rendered as ChatML with `opening` before it.
pub fn start(engine: SocketAddr, opening: &'static str) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let tokenizer = Tokenizer::load(TINY, Choice::Reference).expect("a tokenizer");
        for client in listener.incoming().flatten() {
            // A client that is gone is its own affair: its test says what is missing.
            let _ = serve(client, engine, &tokenizer, opening);
        }
    });
    address
}

fn serve(
    mut client: TcpStream,
    engine: SocketAddr,
    tokenizer: &Tokenizer,
    opening: &str,
) -> std::io::Result<()> {
    let (head, body) = request(&mut client)?;
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = match (asked["messages"].as_array(), asked["prompt"].as_str()) {
        (Some(messages), _) => Some(format!("{opening}{}", rendered(messages))),
        (None, Some(prompt)) => Some(prompt.to_owned()),
        (None, None) => None,
    };
    let mut stream = TcpStream::connect(engine)?;
    match text {
        None => stream.write_all(&[head.as_bytes(), &body].concat())?,
        Some(text) => {
            let mut ids = Vec::new();
            tokenizer.encode(&text, &mut Recent::default(), &mut ids).expect("ids");
            let mut given = json!({"model": asked["model"], "prompt": ids, "max_tokens": 1});
            if asked["cache_salt"].is_string() {
                given["cache_salt"] = asked["cache_salt"].clone();
            }
            let given = given.to_string();
            let head = format!(
                "POST /v1/completions HTTP/1.1\r\nHost: engine\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                given.len()
            );
            stream.write_all((head + &given).as_bytes())?;
        }
    }
    std::io::copy(&mut stream, &mut client).map(drop)
}

fn rendered(messages: &[Value]) -> String {
    let turn = |message: &Value| {
        let (role, content) = (message["role"].as_str(), message["content"].as_str());
        format!("<|im_start|>{}\n{}<|im_end|>\n", role.unwrap_or_default(), content.unwrap_or_default())
    };
    messages.iter().map(turn).collect::<String>() + "<|im_start|>assistant\n"
}

/// A request's head with its blank line, and its body.
fn request(client: &mut TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        bytes.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
    client.read_exact(&mut body)?;
    Ok((head, body))
}
