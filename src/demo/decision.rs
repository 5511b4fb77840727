//! One request of the exact side in a line: when, which, where it went and why. Owns the columns; pure. Reasons are in
//! the words of `warmpath ctl explain`.

use std::net::SocketAddr;
use warmpath_admin::why;
use warmpath_core::Nanos;
use warmpath_core::decide::exact::Shown;
use warmpath_core::receipt::{self, ExactReceipt, Receipt};

/// The columns and their widths, 79 characters in all.
const COLUMNS: [(&str, usize); 9] = [
    ("TIME", 4),
    ("REQUEST", 12),
    ("TO", 3),
    ("TIER", 6),
    ("REASON", 14),
    ("OVERLAP", 7),
    ("EXPECTED", 8),
    ("FOUND", 5),
    ("LOAD", 4),
];

/// A line, and the sentence that explains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The columns.
    pub row: String,
    /// The reason as a sentence.
    pub why: String,
}

/// The heads of the columns.
pub fn head() -> String {
    line(COLUMNS.map(|(head, _)| head.to_string()))
}

impl Decision {
    /// Of a receipt; `begun` is when the show began, `endpoints` are the side's engines.
    pub fn of(receipt: &Receipt, begun: Nanos, endpoints: &[SocketAddr]) -> Decision {
        let exact = receipt.exact.as_ref();
        let chosen = exact.and_then(ExactReceipt::chosen);
        let blocks = exact.map_or(0, |exact| exact.explanation.blocks);
        let seconds = receipt.at.saturating_sub(begun) / 100_000_000;
        let row = line([
            format!("{}.{}", seconds / 10, seconds % 10),
            request(&receipt.id),
            receipt.endpoint.map_or_else(|| "-".into(), |at| engine_name(at, endpoints)),
            receipt.reason.map_or("-", |reason| reason.tier()).into(),
            receipt.reason.map_or("-", |reason| reason.word()).into(),
            chosen.map_or_else(|| "-".into(), |chosen| format!("{}/{blocks}", chosen.runs[0])),
            number(chosen.and(exact).map(|exact| exact.predicted_tokens)),
            number(exact.and_then(|exact| exact.cached_tokens)),
            chosen.map_or_else(|| "-".into(), load),
        ]);
        Decision { row, why: reason(receipt) }
    }
}

/// Its name in a pool: E and its place.
pub fn engine_name(at: SocketAddr, endpoints: &[SocketAddr]) -> String {
    let place = endpoints.iter().position(|endpoint| *endpoint == at);
    place.map_or_else(|| at.to_string(), |place| format!("E{}", place + 1))
}

/// The name of a request without its side and the load generator's number.
fn request(id: &str) -> String {
    let name = id.split_once('-').map_or(id, |(_, name)| name);
    let name = name.strip_suffix("-0").unwrap_or(name);
    // What came from another client may neither move the cursor nor break the columns.
    name.chars().take(COLUMNS[1].1).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Cause, without the cure.
fn reason(receipt: &Receipt) -> String {
    if let receipt::Outcome::Faulted(fault) = receipt.outcome {
        return format!("status {}: {fault:?}", receipt.status);
    }
    let cause = |sentence: &str| sentence.split("; ").next().unwrap_or_default().to_string();
    let Some(reason) = receipt.reason else { return "no endpoint was chosen".into() };
    match receipt.exact.as_ref().and_then(ExactReceipt::missed) {
        Some(miss) => format!("{}: {}", miss.word(), cause(&why::missed(miss))),
        None => format!("{}: {}", reason.word(), cause(why::selected(reason))),
    }
}

/// Requests in flight, and how many it might have carried.
fn load(chosen: &Shown) -> String {
    match chosen.cap {
        u32::MAX => chosen.load.to_string(),
        cap => format!("{}/{cap}", chosen.load),
    }
}

fn number(number: Option<u32>) -> String {
    number.map_or_else(|| "-".into(), |number| number.to_string())
}

fn line(cells: [String; COLUMNS.len()]) -> String {
    let cell = |(cell, (_, width)): (&String, (&str, usize))| format!("{cell:width$}");
    let cells: Vec<_> = cells.iter().zip(COLUMNS).map(cell).collect();
    cells.join("  ").trim_end().to_string()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use warmpath_core::block::BlockSize;
    use warmpath_core::decide::Reason;
    use warmpath_core::decide::exact::{Candidate, Explanation, Miss, Question, Ranking, rank};
    use warmpath_core::decide::tuning::Tuning;
    use warmpath_core::fleet::Excluded;

    /// A receipt of a request that exact routing left to the selector.
    pub fn receipt(id: &str, port: u16) -> Receipt {
        Receipt {
            at: 12_345_000_000,
            id: id.into(),
            service: 2,
            model: "small".into(),
            endpoint: Some(SocketAddr::from(([127, 0, 0, 1], port))),
            pair: None,
            exact: Some(ExactReceipt {
                explanation: Explanation::unasked(Miss::NoWorker),
                rank: None,
                prompt_tokens: 816,
                predicted_tokens: 0,
                cached_tokens: Some(256),
                engine_tokens: Some(816),
                finding: None,
            }),
            reason: Some(Reason::RoundRobin),
            status: 200,
            outcome: receipt::Outcome::Completed,
            streamed: true,
            first_byte: 40_000_000,
            total: 200_000_000,
            bytes_out: 10,
            retries: 0,
        }
    }

    const ENDPOINTS: [SocketAddr; 2] = [
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8001),
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8002),
    ];

    #[test]
    fn a_miss_tells_its_cause_in_the_words_of_explain() {
        let told = Decision::of(&receipt("exact-acme-8.1-0", 8002), 2_000_000_000, &ENDPOINTS);
        let cells: Vec<&str> = told.row.split_whitespace().collect();
        assert_eq!(cells, ["10.3", "acme-8.1", "E2", "tier2", "round_robin", "-", "-", "256", "-"]);
        assert_eq!(told.why, "no_worker: nobody holds the beginning of this prompt");
        assert!(why::missed(Miss::NoWorker).starts_with("nobody holds the beginning of this prompt; "));
    }

    /// What exact routing says of a prompt of 60 blocks, of which the second of two engines holds 56.
    pub fn chosen() -> Explanation {
        let tuning = Tuning { seed_every: 0, ..Tuning::default() };
        let candidate = |endpoint, held, load| Candidate {
            endpoint,
            runs: [held; 3],
            promised: held,
            load,
            available: true,
            ..Candidate::default()
        };
        let question = Question {
            candidates: &[candidate(0, 16, 1), candidate(1, 56, 1)],
            blocks: 60,
            block_size: BlockSize::new(16).expect("a size"),
            excluded: Excluded::default(),
            single_pool: true,
            tuning: &tuning,
        };
        let mut ranking = Ranking::default();
        rank(&question, || 1, &mut ranking).expect("a holder");
        Explanation::chosen(&question, &ranking, 0)
    }

    #[test]
    fn a_choice_tells_overlap_prediction_and_load() {
        let mut receipt = receipt("exact-acme-8.3-0", 8002);
        receipt.reason = Some(Reason::Exact);
        let exact = receipt.exact.as_mut().expect("one");
        (exact.explanation, exact.predicted_tokens, exact.cached_tokens) = (chosen(), 896, Some(890));
        let told = Decision::of(&receipt, 0, &ENDPOINTS);
        let cells: Vec<&str> = told.row.split_whitespace().collect();
        assert_eq!(cells, ["12.3", "acme-8.3", "E2", "tier15", "exact", "56/60", "896", "890", "1/2"]);
        assert_eq!(told.why, format!("exact: {}", why::selected(Reason::Exact)));
    }

    #[test]
    fn rows_stand_under_their_heads_and_fit_80_columns() {
        assert!(head().len() < 80, "{}", head().len());
        let told = Decision::of(&receipt("exact-\x1b[2Ja-very-long-name-of-a-stranger", 9), 0, &ENDPOINTS);
        assert!(!told.row.contains('\x1b') && told.row.contains("127.0.0.1:9"), "{}", told.row);
        let of_first = Decision::of(&receipt("exact-heron-63.5-0", 8001), 0, &ENDPOINTS).row;
        assert_eq!(head().find("REASON"), of_first.find("round_robin"));
    }
}
