//! `warmpath ctl explain`: where the last requests went and why. Owns the table, the long form of one decision
//! and how both follow what comes; must never give a reason of its own (the gateway's sentences are printed).

use super::client::{self, Client};
use super::follow::{Follow, Stream};
use super::show::{age, aligned, items, padded, word, words};
use super::{CtlFault, Output, Printer, follow_stream};
use clap::Args;
use serde_json::Value;

const PATH: &str = "/netlox/v1/config/ai/explain";

/// The decisions as they come.
const STREAM: Stream = Stream { path: PATH, count: "limit", list: "decisions" };

/// Least widths of the columns, so that lines printed one by one stand under their heads.
const COLUMNS: [(&str, usize); 12] = [
    ("AGE", 11),
    ("ID", 20),
    ("RULE", 12),
    ("MODEL", 16),
    ("ENDPOINT", 21),
    ("RANK", 4),
    ("TIER", 6),
    ("REASON", 14),
    ("TOKENS", 6),
    ("OVERLAP", 9),
    ("PREDICTED", 9),
    ("MISSED", 0),
];

/// Which decisions, and how long.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  warmpath ctl explain                 the last 20 decisions, newest first
  warmpath ctl explain chat-7f3a       all that is known of the request with this X-Request-Id
  warmpath ctl explain -f --wide       each decision with its candidates, as it is made

OVERLAP: leading blocks of the prompt that the endpoint held, of those the prompt has. MISSED: why blocks did not
decide. Each shard keeps its last 256 requests.")]
pub struct ExplainArgs {
    /// A request's X-Request-Id.
    pub id: Option<String>,
    /// How many.
    #[arg(short = 'n', long = "last", value_name = "N", default_value_t = 20)]
    pub last: u64,
    /// Go on and print new ones as they come.
    #[arg(short, long, conflicts_with = "id")]
    pub follow: bool,
    /// Every candidate, who was passed over and why; always so for one id.
    #[arg(short, long)]
    pub wide: bool,
}

/// Does it.
pub fn run(client: &Client, args: &ExplainArgs, printer: &mut Printer) -> Result<(), CtlFault> {
    let wide = args.wide || printer.output == Output::Wide;
    if args.follow {
        let line = if wide { apart } else { line };
        if printer.output == Output::Table && !wide {
            printer.text(&head())?;
        }
        return follow_stream(client, Follow::new(&STREAM, args.last), line, printer);
    }
    let mut path = format!("{PATH}?limit={}", args.last);
    if let Some(id) = &args.id {
        path += &format!("&id={}", client::encoded(id));
    }
    let answer = client.get(&path)?;
    printer.answer(&answer, if wide || args.id.is_some() { all_long } else { table })
}

fn head() -> String {
    padded(&COLUMNS.map(|(head, _)| head.to_string()), &COLUMNS)
}

fn table(answer: &Value) -> String {
    head() + &items(answer, "decisions").iter().map(line).collect::<String>()
}

fn all_long(answer: &Value) -> String {
    let decisions: Vec<String> = items(answer, "decisions").iter().map(long).collect();
    decisions.join("\n")
}

/// In the long form, with an empty line after it.
fn apart(decision: &Value) -> String {
    long(decision) + "\n"
}

fn line(decision: &Value) -> String {
    let exact = &decision["exact"];
    let cells = [
        age(&decision["age_us"]),
        word(&decision["id"]),
        rule(decision),
        word(&decision["model"]),
        word(&decision["endpoint"]),
        word(&decision["rank"]),
        word(&decision["tier"]),
        word(&decision["reason"]),
        word(&exact["prompt_tokens"]),
        overlap(exact),
        word(&exact["predicted_tokens"]),
        word(&exact["missed"]),
    ];
    padded(&cells, &COLUMNS)
}

/// The rule's name, or the number of a service that is no more.
fn rule(decision: &Value) -> String {
    match (decision["rule"].as_str(), decision["service_id"].as_u64()) {
        (None | Some(""), Some(number)) if number > 0 => format!("#{number}"),
        _ => word(&decision["rule"]),
    }
}

fn overlap(exact: &Value) -> String {
    match exact["overlap_blocks"].as_u64() {
        Some(blocks) => format!("{blocks}/{}", word(&exact["prompt_blocks"])),
        None => "-".into(),
    }
}

/// One decision on some lines.
fn long(decision: &Value) -> String {
    let text = |name: &str| word(&decision[name]);
    let mut out = format!("{}, {}\n", text("id"), age(&decision["age_us"]));
    out += &format!(
        "  rule {}, model {}, status {}, {}\n",
        rule(decision),
        text("model"),
        text("status"),
        text("outcome")
    );
    out += &destination(decision);
    let exact = &decision["exact"];
    if exact.is_object() { out + &exact_lines(exact) } else { out }
}

fn destination(decision: &Value) -> String {
    if decision["reason"].is_null() {
        return "  no endpoint was chosen\n".into();
    }
    let text = |name: &str| word(&decision[name]);
    let rank = decision["rank"].as_u64().map_or_else(String::new, |rank| format!(" rank {rank}"));
    format!("  {}{rank}, {} by {}: {}\n", text("endpoint"), text("tier"), text("reason"), text("why"))
}

fn exact_lines(exact: &Value) -> String {
    let text = |name: &str| word(&exact[name]);
    let mut out = String::new();
    if !exact["prompt_tokens"].is_null() {
        out += &format!("  prompt: {} tokens, {} blocks", text("prompt_tokens"), text("prompt_blocks"));
        if !exact["overlap_blocks"].is_null() {
            out += &format!(
                "; {} blocks held, {} held or on their way, {} tokens predicted to be cached",
                text("overlap_blocks"),
                text("promised_blocks"),
                text("predicted_tokens")
            );
        }
        if !exact["cached_tokens"].is_null() {
            out += &format!("; {} were, the engine says", text("cached_tokens"));
            if let Some(finding) = exact["finding"].as_str().filter(|finding| *finding != "agrees") {
                out += &format!(" ({finding})");
            }
        }
        out.push('\n');
    }
    if !exact["missed"].is_null() {
        out += &format!("  missed: {}: {}\n", text("missed"), text("missed_why"));
    }
    let over = &exact["passed_over"];
    if over.is_object() {
        out += &format!("  passed over: {}: {}\n", word(&over["endpoint"]), word(&over["why"]));
    }
    match exact["refused"].as_u64() {
        None | Some(0) => {}
        Some(some) => {
            out += &format!("  refused first: {some}, since others reached their load bound meanwhile\n")
        }
    }
    out + &candidates(exact)
}

fn candidates(exact: &Value) -> String {
    let shown = items(exact, "candidates");
    if shown.is_empty() {
        return String::new();
    }
    let mut rows =
        vec![words(["", "CANDIDATE", "RANK", "GPU", "HOST", "DISK", "PROMISED", "LOAD", "CAP", ""])];
    let chose = !exact["overlap_blocks"].is_null();
    for (place, candidate) in shown.iter().enumerate() {
        let passed_over = exact["passed_over"]["ep_idx"] == candidate["ep_idx"];
        let note = match place {
            0 if chose => "chosen",
            _ if passed_over => "passed over",
            _ if candidate["untrusted"] == true => "not trusted",
            _ if candidate["unproven"].is_string() => "not proven",
            _ => "",
        };
        let blocks = &candidate["blocks"];
        rows.push(vec![
            String::new(),
            word(&candidate["endpoint"]),
            word(&candidate["rank"]),
            word(&blocks["gpu"]),
            word(&blocks["host"]),
            word(&blocks["disk"]),
            word(&candidate["promised"]),
            word(&candidate["load"]),
            word(&candidate["cap"]),
            note.into(),
        ]);
    }
    let mut out = aligned(&rows);
    let count = exact["candidate_count"].as_u64().unwrap_or(0);
    if count > shown.len() as u64 {
        out += &format!("  {} of {count} candidates are shown\n", shown.len());
    }
    out
}

#[cfg(test)]
mod tests;
