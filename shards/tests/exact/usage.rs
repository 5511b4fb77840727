//! What engines say of their caches in their answers, in every framing, and where the number goes. Owns answers
//! whole and streamed; the reading byte by byte is tested where it is.

use crate::actors::Asked;
use crate::world::{Pool, World};
use crate::{ask, prompt};
use serde_json::json;
use warmpath_core::control::ExactReport;
use warmpath_core::receipt::ExactReceipt;
use warmpath_core::shared::Tier;

/// A completion that tells so much, as vLLM writes it. Its text tells something else.
pub fn whole(cached: u32) -> String {
    let text = r#"{"usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}}}"#;
    json!({"choices": [{"index": 0, "text": text}], "model": "m", "object": "text_completion",
           "usage": {"completion_tokens": 2, "prompt_tokens": 192,
                     "prompt_tokens_details": {"cached_tokens": cached}, "total_tokens": 194}})
    .to_string()
}

/// Its events, the last but one with the usage.
fn events(cached: u32) -> String {
    let event = |json: serde_json::Value| format!("data: {json}\n\n");
    let tokens = ["a", "\"cached_tokens\":9,"].map(|text| event(json!({"choices": [{"text": text}]})));
    let details = json!({"cached_tokens": cached});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 192, "prompt_tokens_details": details}});
    tokens.concat() + &event(usage) + "data: [DONE]\n\n"
}

pub fn by_length(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn until_close(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{body}")
}

/// In chunks of so many bytes.
fn chunked(kind: &str, body: &str, each: usize) -> String {
    let chunk = |part: &[u8]| format!("{:x}\r\n{}\r\n", part.len(), std::str::from_utf8(part).unwrap());
    let chunks: String = body.as_bytes().chunks(each).map(chunk).collect();
    format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
}

/// One prompt of 12 blocks to an engine that holds 9 and answers with `script`.
fn told(script: String) -> (ExactReceipt, ExactReport, Vec<u8>) {
    let mut world = World::new(Pool::of(2).saying(script));
    world.hold(1, 0, Tier::Gpu, &prompt(1, 9));
    let served = world.ask(ask(&prompt(1, 12)));
    assert_eq!(served.status, 200);
    let mut report = world.report();
    world.assert_settled();
    (report.receipts.remove(0).exact.unwrap(), report.exact.remove(0), served.body)
}

#[test]
fn the_number_reaches_receipt_and_report_in_every_framing() {
    const JSON: &str = "application/json";
    const STREAM: &str = "text/event-stream";
    let scripts = [by_length(&whole(144)), until_close(&whole(144)), until_close(&events(144))];
    let pieces = [1, 2, 3, 7, 16, 61, 4096];
    let chunks = pieces.into_iter().flat_map(|each| {
        [
            chunked(JSON, &whole(144), each),
            chunked(STREAM, &events(144), each),
            chunked(STREAM, &whole(144), each),
        ]
    });
    for script in scripts.into_iter().chain(chunks) {
        let (receipt, report, _) = told(script.clone());
        assert_eq!((receipt.predicted_tokens, receipt.cached_tokens), (144, Some(144)), "{script}");
        assert_eq!(receipt.engine_tokens, Some(192), "{script}");
        assert_eq!((report.cached_tokens, report.told, report.as_predicted), (144, 1, 1), "{script}");
    }
}

#[test]
fn a_client_that_knows_no_chunks_changes_nothing() {
    for script in [chunked("text/event-stream", &events(144), 5), until_close(&whole(144))] {
        let mut world = World::new(Pool::of(2).saying(script));
        world.hold(1, 0, Tier::Gpu, &prompt(1, 9));
        let body = json!({"model": "m", "prompt": prompt(1, 12)}).to_string();
        let head =
            format!("POST /v1/completions HTTP/1.0\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        let served = world.ask(Asked::raw(&(head + &body)));
        assert!([events(144), whole(144)].iter().any(|body| body.as_bytes() == served.body));
        assert_eq!(world.receipts()[0].exact.unwrap().cached_tokens, Some(144));
    }
}

#[test]
fn the_answer_goes_on_as_it_came() {
    for script in [by_length(&whole(144)), chunked("text/event-stream", &events(144), 5)] {
        let (_, _, body) = told(script.clone());
        assert_eq!(script.split_once("\r\n\r\n").unwrap().1.as_bytes(), body);
    }
}

#[test]
fn another_number_than_predicted_is_told_as_it_is() {
    let (receipt, report, _) = told(by_length(&whole(16)));
    assert_eq!((receipt.predicted_tokens, receipt.cached_tokens), (144, Some(16)));
    assert_eq!((report.predicted_tokens, report.cached_tokens), (144, 16));
    assert_eq!((report.told, report.as_predicted), (1, 0));
}

#[test]
fn who_does_not_tell_counts_for_nothing() {
    let null =
        json!({"choices": [], "usage": {"prompt_tokens": 192, "prompt_tokens_details": null}}).to_string();
    for script in [by_length("{}"), by_length(&null), chunked("text/event-stream", "data: [DONE]\n\n", 99)] {
        let (receipt, report, _) = told(script);
        assert_eq!(receipt.cached_tokens, None);
        assert_eq!((report.cached_tokens, report.told, report.as_predicted), (0, 0, 0));
    }
}

#[test]
fn what_the_selector_chose_is_told_in_its_receipt_and_judges_no_prediction() {
    let mut world = World::new(Pool::of(2).saying(by_length(&whole(16))));
    world.ask(ask(&prompt(1, 12)));
    let report = world.report();
    assert_eq!(report.receipts[0].exact.unwrap().cached_tokens, Some(16));
    assert_eq!((report.exact[0].told, report.exact[0].cached_tokens), (0, 0));
}

#[test]
fn who_serves_in_place_of_a_dead_one_is_judged_by_its_own_prediction() {
    let mut world = World::new(Pool::of(2).refusing(1).saying(by_length(&whole(0))));
    world.hold(1, 0, Tier::Gpu, &prompt(1, 9));
    world.ask(ask(&prompt(1, 12)));
    let receipt = world.receipts().remove(0);
    let exact = receipt.exact.unwrap();
    assert_eq!((receipt.retries, exact.predicted_tokens, exact.cached_tokens), (1, 0, Some(0)));
}
