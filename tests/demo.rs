//! The demo as a script meets it: to its end with all it claims, failing where exact routing is off, gone without a trace
//! when it is interrupted. Owns no gateway that outlives a test.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Far more than the demo takes on an idle machine.
const PATIENCE: Duration = Duration::from_secs(180);

fn started(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warmpath"));
    command.arg("demo").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary runs")
}

/// Its output, once it ended by itself. One that hangs is killed, and fails the test.
fn demo(arguments: &[&str]) -> Output {
    let child = started(arguments);
    let id = Pid::from_child(&child);
    let (done, watch) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let is_late = watch.recv_timeout(PATIENCE).is_err();
        if is_late {
            kill_process(id, Signal::KILL).expect("a child of this test");
        }
        is_late
    });
    let output = child.wait_with_output().expect("its output");
    // The watchdog may have gone already.
    let _ = done.send(());
    assert!(!watchdog.join().expect("no panic"), "it did not end: {}", text(&output.stdout));
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The words of the last line that begins so.
fn cells<'t>(out: &'t str, label: &str) -> Vec<&'t str> {
    let line = out.lines().rev().find(|line| line.starts_with(label));
    let line = line.unwrap_or_else(|| panic!("no line of {label}: {out}"));
    line[label.len()..].split_whitespace().collect()
}

fn number(cell: &str) -> u64 {
    cell.replace(',', "").parse().unwrap_or_else(|_| panic!("{cell:?} is no number"))
}

#[test]
fn once_compares_both_sides_and_every_act_goes_as_told() {
    let done = demo(&["--once"]);
    let (out, told) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(0), "{out}{told}");
    assert!(!out.contains('\x1b') && !out.contains("FAILED") && !out.contains("not_run"), "{out}");
    assert_eq!(cells(&out, "turns answered"), ["120", "120"], "{out}");
    let tokens = |label: &str| cells(&out, label)[..2].iter().map(|cell| number(cell)).collect::<Vec<_>>();
    let (prompt, saved, computed) =
        (tokens("prompt tokens"), tokens("prefill saved, tokens"), tokens("prefill computed"));
    for side in 0..2 {
        assert_eq!(saved[side] + computed[side], prompt[side], "{out}");
    }
    assert!(prompt[0] == prompt[1] && computed[1] * 4 <= computed[0] * 3, "{out}");
    assert_each_decision_has_its_reason(&out);
    for part in [
        "Act 1, an engine restarts.",
        " is killed. It holds ",
        "Its next turn is answered by ",
        "the old one have left the index",
        " warms again: ",
        "Act 2, an eviction.",
        " blocks evicted and ",
        "The next turn goes to ",
        "Act 3, a lost message.",
        "are apart: 54 blocks stored",
        "those of the engine's own list, key by key (complete)",
        "The next turn of new-300 goes to E1 by blocks: 54 of 60 blocks held, 864 tokens expected in the cache and 864",
    ] {
        assert!(out.contains(part), "{part:?} is not told: {out}");
    }
}

/// One line for each of the 120 requests by blocks, and for those of the acts; a chosen engine with what it found.
fn assert_each_decision_has_its_reason(out: &str) {
    let rows: Vec<Vec<&str>> = out
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|cells| cells.get(3).is_some_and(|tier| tier.starts_with("tier")))
        .collect();
    let of_tenants: Vec<&Vec<&str>> = rows.iter().filter(|cells| !cells[1].starts_with("new-")).collect();
    let mut names: Vec<&str> = of_tenants.iter().map(|cells| cells[1]).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((of_tenants.len(), names.len()), (120, 120), "{out}");
    assert!(rows.len() > 125, "{} rows with the acts': {out}", rows.len());
    for row in rows {
        assert!(row[2].starts_with('E') && row.len() > 12, "{row:?}");
        let words = (row[3], row[4], row[9].trim_end_matches(':'));
        match words {
            ("tier15", reason, why) => assert_eq!(reason, why, "{row:?}"),
            (_, reason, why) => assert!(reason == "round_robin" && why != reason, "{row:?}"),
        }
    }
}

/// It can't be a demo that can't fail.
#[test]
fn without_exact_routing_it_fails_and_says_of_what() {
    let done = demo(&["--once", "--exact-mode", "0", "--engines", "3"]);
    let (out, told) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(1), "{out}{told}");
    for part in ["did not beat round robin", "Act 1, ", "Act 2, ", "Act 3, "] {
        assert!(told.contains(part), "{part:?}: {out}{told}");
    }
    assert_eq!(out.matches("FAILED: Act").count(), 3, "{out}");
    assert!(out.contains("IN TURN TOO") && !out.contains("  tier15  "), "{out}");
}

/// Ctrl-C in the midst: it ends at once, and its folder goes with it.
#[test]
fn an_interrupted_demo_leaves_nothing() {
    let mut child = started(&["--plain"]);
    let folder = std::env::temp_dir().join(format!("warmpath-demo-{}", child.id()));
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let is_under_way = lines.any(|line| line.is_ok_and(|line| line.contains("  tier15  ")));
    assert!(is_under_way && folder.exists());
    kill_process(Pid::from_child(&child), Signal::INT).expect("a child of this test");
    let begun = Instant::now();
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let status = child.wait().expect("its status");
    assert_eq!(status.code(), Some(0), "it was wanted: {rest:?}");
    assert!(begun.elapsed() < PATIENCE && !Path::new(&folder).exists());
    assert!(!rest.iter().any(|line| line.starts_with("prefill computed")), "no summary of a part: {rest:?}");
}

#[test]
fn a_busy_port_is_one_sentence_and_exit_code_1() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let failed = demo(&["--once", "--port", &port]);
    let told = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{told}");
    assert!(told.contains(&port) && told.contains("another program listens there"), "{told}");
    assert_eq!(text(&failed.stdout), "", "no table of nothing");
}

#[test]
fn real_engines_that_are_not_installed_are_told_with_the_command_that_installs_them() {
    let failed = demo(&["--real", "no-such-folder"]);
    let told = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{told}");
    assert!(told.contains("`tests/real/install no-such-folder vllm models`"), "{told}");
}
