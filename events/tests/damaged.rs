//! Recorded messages, cut and bent: what the fuzz targets check holds for each.

use warmpath_events::fuzz;

const FILES: [&str; 3] = [
    include_str!("vectors/vllm-0.23.0-events.jsonl"),
    include_str!("vectors/vllm-0.33.0-events.jsonl"),
    include_str!("vectors/sglang-0.5.23-events.jsonl"),
];

fn payloads() -> impl Iterator<Item = Vec<u8>> {
    let lines = FILES.iter().flat_map(|file| file.lines());
    lines.filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line");
        let hex = line["payload_hex"].as_str()?;
        Some(
            (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"))
                .collect(),
        )
    })
}

#[test]
fn event_payloads() {
    for payload in payloads() {
        fuzz::payload(&payload);
        for at in 0..payload.len().min(160) {
            fuzz::payload(&payload[..at]);
            for bit in 0..8 {
                let mut bent = payload.clone();
                bent[at] ^= 1 << bit;
                fuzz::payload(&bent);
            }
        }
    }
}

#[test]
fn drained_bodies() {
    let example: serde_json::Value =
        serde_json::from_str(include_str!("vectors/trtllm-events-example.json")).expect("JSON");
    let body = example["kv_cache_events"].to_string().into_bytes();
    fuzz::drained(&body);
    for at in (0..body.len()).step_by(7) {
        fuzz::drained(&body[..at]);
        let mut bent = body.clone();
        bent[at] = b'9';
        fuzz::drained(&bent);
    }
}
