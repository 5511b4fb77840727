//! What the demo knows: rows from receipts, bars from receipts and from the engines' own counts. Owns the
//! arithmetic and the layout; pure.

use super::warmth::Warmth;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use warmpath_core::Nanos;
use warmpath_core::control::ShardReport;
use warmpath_core::decide::exact::Outcome as ExactOutcome;
use warmpath_core::receipt::{ExactReceipt, Outcome, Receipt};

/// Receipts kept for the table.
const KEPT: usize = 10_000;
/// Characters of a full bar.
const BAR: usize = 24;
/// The table's columns and their widths.
const COLUMNS: [(&str, usize); 13] = [
    ("TIME UTC", 8),
    ("MODEL", 5),
    ("ENDPOINT", 16),
    ("WHY", 14),
    ("OVERLAP", 7),
    ("PROMPT", 6),
    ("PREDICTED", 9),
    ("CACHED", 6),
    ("STATUS", 6),
    ("SSE", 3),
    ("TTFT", 8),
    ("RETRIES", 7),
    ("REQUEST", 0),
];

/// What one engine counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Requests it is answering.
    pub running: u64,
    /// Prompt tokens so far.
    pub prompt: u64,
    /// Of these, found in its prefix cache.
    pub cached: u64,
    /// It takes no connections now.
    pub resting: bool,
}

/// One moment on two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// The clock of receipts.
    pub now: Nanos,
    /// Since the Unix epoch.
    pub wall: Duration,
}

struct Endpoint {
    address: SocketAddr,
    requests: u64,
    seen: Seen,
}

struct Row {
    at: Duration,
    receipt: Receipt,
}

/// Everything seen so far.
pub struct Board {
    endpoints: Vec<Endpoint>,
    rows: VecDeque<Row>,
    requests: u64,
    warmth: Warmth,
    /// The newest receipt of each shard that was taken.
    newest: Vec<Nanos>,
}

impl Board {
    /// A board for engines at these addresses.
    pub fn new(engines: Vec<SocketAddr>) -> Board {
        let endpoint = |address| Endpoint { address, requests: 0, seen: Seen::default() };
        Board {
            endpoints: engines.into_iter().map(endpoint).collect(),
            rows: VecDeque::new(),
            requests: 0,
            warmth: Warmth::default(),
            newest: Vec::new(),
        }
    }

    /// Requests with a receipt.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Takes what is new. `seen` is in the order of the engines.
    pub fn take(&mut self, reports: &[ShardReport], seen: Vec<Seen>, clocks: Clocks) {
        let mut fresh: Vec<&Receipt> = reports.iter().flat_map(|report| self.fresh(report)).collect();
        fresh.sort_by_key(|receipt| receipt.at);
        for receipt in fresh {
            self.add(receipt, clocks);
        }
        for report in reports {
            if self.newest.len() <= report.shard {
                self.newest.resize(report.shard + 1, 0);
            }
            let newest = report.receipts.iter().map(|receipt| receipt.at).max().unwrap_or(0);
            self.newest[report.shard] = self.newest[report.shard].max(newest);
        }
        for (endpoint, seen) in self.endpoints.iter_mut().zip(seen) {
            endpoint.seen = seen;
        }
    }

    fn fresh<'r>(&self, report: &'r ShardReport) -> impl Iterator<Item = &'r Receipt> + use<'r> {
        let newest = self.newest.get(report.shard).copied().unwrap_or(0);
        report.receipts.iter().filter(move |receipt| receipt.at > newest)
    }

    fn add(&mut self, receipt: &Receipt, clocks: Clocks) {
        self.requests += 1;
        self.warmth.add(receipt);
        if let Some(endpoint) = self.endpoints.iter_mut().find(|e| Some(e.address) == receipt.endpoint) {
            endpoint.requests += 1;
        }
        if self.rows.len() == KEPT {
            self.rows.pop_front();
        }
        let age = Duration::from_nanos(clocks.now.saturating_sub(receipt.at));
        self.rows.push_back(Row { at: clocks.wall.saturating_sub(age), receipt: receipt.clone() });
    }

    /// What exact routing was good for, in a line.
    pub fn summary(&self) -> String {
        self.warmth.to_string()
    }

    /// Whether exact routing did what it is for.
    pub fn verdict(&self) -> Result<(), String> {
        self.warmth.verdict()
    }

    /// A line for each endpoint.
    pub fn endpoints(&self) -> String {
        let head = format!(
            "{:21}  {:BAR$}  {:>5}  {:>9}  {:>11}\n",
            "ENDPOINT", "SHARE", "", "IN FLIGHT", "PREFIX HITS"
        );
        let routed: u64 = self.endpoints.iter().map(|e| e.requests).sum();
        let lines = self.endpoints.iter().map(|endpoint| {
            let share = percent(endpoint.requests, routed);
            let full = share.unwrap_or(0) as usize * BAR / 100;
            let note = if endpoint.seen.resting { "  takes no connections" } else { "" };
            format!(
                "{:21}  {:·<BAR$}  {:>5}  {:>9}  {:>11}{note}\n",
                endpoint.address.to_string(),
                "█".repeat(full),
                shown(share),
                endpoint.seen.running,
                shown(percent(endpoint.seen.cached, endpoint.seen.prompt)),
            )
        });
        head + &lines.collect::<String>()
    }

    /// The last `count` rows, oldest first.
    pub fn rows(&self, count: usize) -> String {
        let skip = self.rows.len().saturating_sub(count);
        self.rows.iter().skip(skip).map(row).collect()
    }
}

/// The head of the rows.
pub fn row_head() -> String {
    line(COLUMNS.map(|(name, _)| name.into()))
}

fn row(row: &Row) -> String {
    let receipt = &row.receipt;
    let status = match receipt.outcome {
        Outcome::ClientLeft => "left".to_string(),
        _ => receipt.status.to_string(),
    };
    line([
        time_of_day(row.at),
        plain(&receipt.model),
        receipt.endpoint.map_or_else(|| "-".into(), |at| at.to_string()),
        receipt.reason.map_or("-", |reason| reason.word()).into(),
        number(overlap(receipt)),
        number(receipt.exact.and_then(prompt_tokens)),
        number(overlap(receipt).and(receipt.exact).map(|exact| exact.predicted_tokens)),
        number(receipt.exact.and_then(|exact| exact.cached_tokens)),
        status,
        if receipt.streamed { "yes" } else { "no" }.into(),
        millis(receipt.first_byte),
        receipt.retries.to_string(),
        plain(&receipt.id),
    ])
}

/// Blocks of the prompt that the endpoint held, where exact routing chose it.
fn overlap(receipt: &Receipt) -> Option<u32> {
    let explained = receipt.exact?.explanation;
    let chosen = matches!(explained.outcome, ExactOutcome::Chosen { .. });
    Some(explained.shown().first()?.runs[0]).filter(|_| chosen)
}

/// As the gateway counted them, else as the engine did.
fn prompt_tokens(exact: ExactReceipt) -> Option<u32> {
    Some(exact.prompt_tokens).filter(|tokens| *tokens > 0).or(exact.engine_tokens)
}

fn line(cells: [String; COLUMNS.len()]) -> String {
    let cell = |(cell, (_, width)): (&String, (&str, usize))| format!("{cell:width$}");
    let cells: Vec<_> = cells.iter().zip(COLUMNS).map(cell).collect();
    cells.join("  ").trim_end().to_string() + "\n"
}

/// What came from a client may neither move the cursor nor break the columns.
fn plain(text: &str) -> String {
    let text: String = text.chars().take(24).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.is_empty() { "-".into() } else { text }
}

fn percent(part: u64, whole: u64) -> Option<u64> {
    (part * 100).checked_div(whole)
}

fn shown(percent: Option<u64>) -> String {
    percent.map_or_else(|| "-".into(), |p| format!("{p} %"))
}

fn number(number: Option<u32>) -> String {
    number.map_or_else(|| "-".into(), |number| number.to_string())
}

fn millis(nanos: Nanos) -> String {
    match nanos / 1_000 {
        0 => "-".into(),
        us => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
    }
}

fn time_of_day(wall: Duration) -> String {
    let s = wall.as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}", s / 3_600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmpath_core::decide::Reason;

    fn receipt(at: Nanos, port: u16) -> Receipt {
        Receipt {
            at,
            id: format!("id-{at}"),
            service: 1,
            model: "small\x1b[2J".into(),
            endpoint: Some(SocketAddr::from(([127, 0, 0, 1], port))),
            exact: None,
            pair: None,
            reason: Some(Reason::HashHome),
            status: 200,
            outcome: Outcome::Completed,
            streamed: true,
            first_byte: 1_540_000,
            total: 2_030_000_000,
            bytes_out: 10,
            retries: 1,
        }
    }

    fn report(shard: usize, receipts: Vec<Receipt>) -> ShardReport {
        ShardReport { shard, receipts, ..ShardReport::default() }
    }

    const CLOCKS: Clocks = Clocks { now: 10_000_000_000, wall: Duration::from_secs(3_600) };

    fn board() -> Board {
        Board::new([8001, 8002].map(|port| SocketAddr::from(([127, 0, 0, 1], port))).into())
    }

    #[test]
    fn each_receipt_is_taken_once_in_the_order_of_all_shards() {
        let mut board = board();
        let seen = || vec![Seen { prompt: 200, cached: 50, running: 3, resting: true }; 2];
        board.take(&[report(0, vec![receipt(9_000_000_000, 8001)])], seen(), CLOCKS);
        let both = [
            report(0, vec![receipt(9_000_000_000, 8001), receipt(9_500_000_000, 8002)]),
            report(1, vec![receipt(9_400_000_000, 8002), receipt(9_600_000_000, 8002)]),
        ];
        board.take(&both, seen(), CLOCKS);
        board.take(&both, seen(), CLOCKS);
        assert_eq!(board.requests(), 4);
        let rows = board.rows(9);
        let ids: Vec<_> = rows.lines().filter_map(|l| l.split_whitespace().last()).collect();
        assert_eq!(ids, ["id-9000000000", "id-9400000000", "id-9500000000", "id-9600000000"]);
        assert_eq!(board.rows(1).lines().count(), 1);
        let bars = board.endpoints();
        assert!(bars.contains(&"█".repeat(18)), "three quarters of {BAR}: {bars}");
        assert!(bars.contains("75 %") && bars.contains("25 %") && bars.contains("takes no connections"));
    }

    #[test]
    fn a_row_tells_time_reason_and_times_and_moves_no_cursor() {
        let mut board = board();
        board.take(&[report(0, vec![receipt(9_000_000_000, 8001)])], Vec::new(), CLOCKS);
        let row = board.rows(1);
        for part in ["00:59:59 ", "small?[2J", "127.0.0.1:8001", "hash_home", "1.5 ms", "yes"] {
            assert!(row.contains(part), "{part}: {row}");
        }
        assert!(!row.contains('\x1b'));
    }

    #[test]
    fn nothing_seen_shows_nothing_made_up() {
        let bars = board().endpoints();
        assert_eq!(bars.matches(" - ").count() + bars.matches(" -\n").count(), 4, "{bars}");
    }
}
