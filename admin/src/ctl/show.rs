//! The gateway's JSON as tables for people. Owns columns and units; pure.

use serde_json::Value;

/// Least widths of the columns of receipts, so that lines printed one by one stand under their heads.
const RECEIPT_COLUMNS: [(&str, usize); 8] = [
    ("TIME (UTC)", 12),
    ("STATUS", 6),
    ("ENDPOINT", 21),
    ("REASON", 12),
    ("MODEL", 20),
    ("FIRST BYTE", 10),
    ("TOTAL", 10),
    ("OUTCOME", 0),
];

/// Rules in force.
pub fn rules(answer: &Value) -> String {
    let mut rows = vec![words(["NAME", "ADDRESS", "HOST", "PATH", "MODEL", "SEL", "ENDPOINTS", "ID"])];
    for rule in items(answer, "lbAttr") {
        let service = &rule["serviceArguments"];
        let text = |name| word(&service[name]);
        let endpoints = items(rule, "endpoints");
        let active = endpoints.iter().filter(|e| e["state"] == "active").count();
        rows.push(vec![
            text("name"),
            format!("{}:{}", text("externalIP"), text("port")),
            text("host"),
            text("path_prefix"),
            text("model_name"),
            text("sel"),
            format!("{active}/{}", endpoints.len()),
            text("id"),
        ]);
    }
    aligned(&rows)
}

/// Rules in force, with what their engines are and how they are routed to.
pub fn rules_wide(answer: &Value) -> String {
    let heads = [
        "NAME",
        "ADDRESS",
        "HOST",
        "PATH",
        "MODEL",
        "SEL",
        "ENGINE",
        "EXACT",
        "PD",
        "FC",
        "SSE",
        "ENDPOINTS",
        "ID",
    ];
    let mut rows = vec![words(heads)];
    for rule in items(answer, "lbAttr") {
        let service = &rule["serviceArguments"];
        let text = |name| word(&service[name]);
        let yes = |name| if service[name] == true { "yes".to_string() } else { "-".into() };
        let endpoint = |e: &Value| {
            let down = if e["state"] == "active" { "" } else { "!" };
            format!("{}:{}{down}", word(&e["endpointIP"]), word(&e["targetPort"]))
        };
        let endpoints: Vec<String> = items(rule, "endpoints").iter().map(endpoint).collect();
        rows.push(vec![
            text("name"),
            format!("{}:{}", text("externalIP"), text("port")),
            text("host"),
            text("path_prefix"),
            text("model_name"),
            text("sel"),
            text("kvEngineType"),
            text("kvExactMode"),
            yes("pd_disagg_mode"),
            text("fc_mode"),
            yes("sse_mode"),
            endpoints.join(","),
            text("id"),
        ]);
    }
    aligned(&rows)
}

/// Probed hosts.
pub fn hosts(answer: &Value) -> String {
    let mut rows = vec![words(["HOST", "NAME", "PROBE", "PORT", "EACH", "STATE"])];
    for host in items(answer, "Attr") {
        let text = |name| word(&host[name]);
        rows.push(vec![
            text("hostName"),
            text("name"),
            text("probeType"),
            text("probePort"),
            format!("{} s", text("probeDuration")),
            text("currState"),
        ]);
    }
    aligned(&rows)
}

/// What a build can do.
pub fn capabilities(answer: &Value) -> String {
    let mut rows = vec![words(["CAPABILITY", "READY", "CODE", "REASON"])];
    for capability in items(answer, "capabilities") {
        let text = |name| word(&capability[name]);
        let ready = if capability["ready"] == true { "yes" } else { "no" };
        rows.push(vec![text("name"), ready.into(), text("reason_code"), text("reason")]);
    }
    aligned(&rows)
}

/// Changes of a rule, a line each.
pub fn history(answer: &Value) -> String {
    let mut rows = vec![words(["NUMBER", "TIME (UTC)", "BYTES", "BODY"])];
    for change in items(answer, "changes") {
        let body = change["body"].as_str().unwrap_or("");
        let line: String = body.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(120).collect();
        rows.push(vec![
            word(&change["number"]),
            clock(change["at"].as_u64().unwrap_or(0).saturating_mul(1_000)),
            body.len().to_string(),
            word(&line.into()),
        ]);
    }
    aligned(&rows)
}

/// What going back changes, or changed.
pub fn rollback(answer: &Value) -> String {
    let mut rows = vec![words(["MEMBER", "NOW", "THEN"])];
    for difference in items(answer, "differences") {
        rows.push(["member", "now", "then"].map(|name| word(&difference[name])).into());
    }
    aligned(&rows) + &last_word(answer)
}

/// What a restore changes, or changed.
pub fn restore(answer: &Value) -> String {
    let mut text = String::new();
    for (list, verb) in [("created", "create"), ("replaced", "replace"), ("deleted", "delete")] {
        for rule in items(answer, list) {
            let (name, address, model) = (&rule["name"], &rule["address"], &rule["model_name"]);
            text += &format!("{verb} {} {} {}\n", word(name), word(address), word(model));
        }
    }
    for warning in items(answer, "warnings") {
        text += &format!("warning: {}\n", word(warning));
    }
    text + &format!("unchanged: {}\n", answer["unchanged"]) + &last_word(answer)
}

fn last_word(answer: &Value) -> String {
    match answer["mode"].as_str() {
        Some("commit") => "done\n".into(),
        _ => "nothing was changed: --commit does it\n".into(),
    }
}

/// Shards.
pub fn shards(answer: &Value) -> String {
    let mut rows =
        vec![words(["SHARD", "GENERATION", "CLIENTS", "UPSTREAMS", "ACTIVE", "REQUESTS", "LONGEST TURN"])];
    for shard in items(answer, "shards") {
        let text = |name| word(&shard[name]);
        rows.push(vec![
            text("shard"),
            text("generation"),
            text("clients"),
            text("upstreams"),
            text("active"),
            word(&shard["counts"]["requests"]),
            time(&shard["turn_us_max"]),
        ]);
    }
    aligned(&rows)
}

/// Models, a row each, and behind them what is wrong or slow.
pub fn models(answer: &Value) -> String {
    let mut rows = vec![words(["MODEL", "ENGINE", "STATE", "PROFILE", "SAFE TOKENS", "FAST", "MIB"])];
    let mut notes = String::new();
    for model in items(answer, "models") {
        let text = |name| word(&model[name]);
        let fast = if model["fast_refused"].is_null() && model["state"] == "loaded" { "yes" } else { "no" };
        let mib = model["bytes"].as_u64().unwrap_or(0) >> 20;
        rows.push(vec![
            text("folder"),
            text("engine"),
            text("state"),
            text("profile"),
            text("safe_tokens"),
            fast.into(),
            mib.to_string(),
        ]);
        for name in ["error", "no_safe_token", "fast_refused", "renders_whole"] {
            if let Some(sentence) = model[name].as_str() {
                notes.push_str(&format!("{}: {sentence}\n", text("folder")));
            }
        }
    }
    for refused in items(answer, "refused_profiles") {
        notes.push_str(&format!(
            "kvprofiles/{} is not taken: {}\n",
            word(&refused["file"]),
            word(&refused["error"])
        ));
    }
    aligned(&rows) + &notes
}

/// Readiness.
pub fn ready(answer: &Value) -> String {
    let word = if answer["ready"] == true { "ready" } else { "not ready" };
    let mut text = format!("{word}: generation {}, {} rules\n", answer["generation"], answer["rules"]);
    for (list, label) in [("reasons", "reason"), ("warnings", "warning")] {
        for sentence in items(answer, list) {
            text.push_str(&format!("{label}: {}\n", sentence.as_str().unwrap_or("")));
        }
    }
    text
}

/// Receipts with their head.
pub fn receipts(answer: &Value) -> String {
    receipts_head() + &items(answer, "receipts").iter().map(receipt).collect::<String>()
}

/// The head of the table of receipts.
pub fn receipts_head() -> String {
    padded(&RECEIPT_COLUMNS.map(|(head, _)| head.to_string()), &RECEIPT_COLUMNS)
}

/// One receipt.
pub fn receipt(receipt: &Value) -> String {
    let cells = [
        clock(receipt["time_ms"].as_u64().unwrap_or(0)),
        word(&receipt["status"]),
        word(&receipt["endpoint"]),
        word(&receipt["reason"]),
        word(&receipt["model"]),
        time(&receipt["first_byte_us"]),
        time(&receipt["total_us"]),
        word(&receipt["outcome"]),
    ];
    padded(&cells, &RECEIPT_COLUMNS)
}

/// A line that stands under the heads of `columns`, each with its least width.
pub fn padded<const N: usize>(cells: &[String; N], columns: &[(&str, usize); N]) -> String {
    let padded = cells.iter().zip(columns).map(|(cell, (_, width))| format!("{cell:width$}"));
    padded.collect::<Vec<_>>().join("  ").trim_end().to_string() + "\n"
}

/// The members of a list; none where there is no list.
pub fn items<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// Cells of a head.
pub fn words<const N: usize>(heads: [&str; N]) -> Vec<String> {
    heads.map(String::from).into()
}

/// A value as a cell: `-` for nothing. What came from a client may not move the terminal's cursor.
pub fn word(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
        other => other.to_string(),
    };
    if text.is_empty() { "-".into() } else { text }
}

/// Microseconds in the unit that reads best.
pub fn time(micros: &Value) -> String {
    match micros.as_u64() {
        None | Some(0) => "-".into(),
        Some(us @ ..1_000) => format!("{us} µs"),
        Some(us @ ..1_000_000) => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
        Some(us) => format!("{}.{:02} s", us / 1_000_000, us % 1_000_000 / 10_000),
    }
}

/// How long ago, in the unit that reads best.
pub fn age(micros: &Value) -> String {
    const MINUTE: u64 = 60_000_000;
    match micros.as_u64() {
        None => "never".into(),
        Some(0) => "now".into(),
        Some(us @ ..MINUTE) => format!("{} ago", time(&us.into())),
        Some(us) if us < 60 * MINUTE => format!("{} min ago", us / MINUTE),
        Some(us) => format!("{} h ago", us / (60 * MINUTE)),
    }
}

/// The time of day of a Unix time in milliseconds.
fn clock(ms: u64) -> String {
    let (s, ms) = (ms / 1_000 % 86_400, ms % 1_000);
    format!("{:02}:{:02}:{:02}.{ms:03}", s / 3_600, s / 60 % 60, s % 60)
}

/// Rows with each column as wide as its widest cell.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_string() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_receipt_stands_under_its_head() {
        let line = receipt(&json!({
            "time_ms": 1_700_000_000_123_u64, "status": 200, "endpoint": "10.0.0.1:8000", "reason": "least_load",
            "model": "m", "first_byte_us": 1_540, "total_us": 2_030_000, "outcome": "completed",
        }));
        let head = receipts_head();
        for (name, cell) in
            [("STATUS", "200"), ("FIRST BYTE", "1.5 ms"), ("TOTAL", "2.03 s"), ("OUTCOME", "completed")]
        {
            let column = |text: &str, part: &str| text.find(part).map(|at| text[..at].chars().count());
            assert_eq!(column(&head, name), column(&line, cell), "{head}{line}");
        }
        assert!(line.starts_with("22:13:20.123  "), "{line}");
    }

    #[test]
    fn nothing_is_a_dash_and_control_characters_are_not_printed() {
        assert_eq!(word(&json!(null)), "-");
        assert_eq!(word(&json!("a\u{1b}[2Jb")), "a?[2Jb");
        assert_eq!((time(&json!(0)), time(&json!(999))), ("-".into(), "999 µs".into()));
    }

    #[test]
    fn rules_are_listed_with_their_active_endpoints() {
        let answer = json!({"lbAttr": [{
            "serviceArguments": {"name": "chat", "externalIP": "10.0.0.9", "port": 80, "sel": 4, "id": "i"},
            "endpoints": [{"state": "active"}, {"state": "inactive"}],
        }]});
        let table = rules(&answer);
        assert_eq!(
            table.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>(),
            ["chat", "10.0.0.9:80", "-", "-", "-", "4", "1/2", "i"]
        );
    }
}
