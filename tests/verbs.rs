//! The verbs as a script meets them: exit codes, one sentence on failure, and the demo to its end. Owns no
//! gateway that outlives a test.

use std::net::TcpListener;
use std::process::{Command, Output};

fn warmpath(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warmpath")).args(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_demo_answers_all_and_shows_each_request_once() {
    let done = warmpath(&["demo", "--once", "--requests", "24", "--engines", "3"]);
    let (out, told) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(0), "{out}{told}");
    let (bars, rows) = out.split_once("TIME UTC").expect("a table");
    let rows: Vec<&str> = rows.lines().skip(1).collect();
    let mut ids: Vec<&str> = rows.iter().filter_map(|row| row.split_whitespace().last()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((rows.len(), ids.len()), (24, 24), "{out}");
    assert!(rows.iter().all(|row| row.contains("  200 ")), "{out}");
    let endpoints: Vec<&str> =
        bars.lines().filter_map(|line| line.split_once("  ").map(|(at, _)| at)).collect();
    let served = |row: &&str| endpoints.iter().any(|at| at.starts_with("127.0.0.") && row.contains(at));
    assert!(rows.iter().all(served), "{out}");
    assert_eq!(rows.iter().filter(|row| row.contains("  large ")).count(), 9, "{out}");
    let warm = rows.iter().filter(|row| row.contains("  exact ")).map(|row| row.split_whitespace().collect());
    let warm: Vec<Vec<&str>> = warm.collect();
    assert!(!warm.is_empty(), "{out}");
    for cells in warm {
        assert!(cells[6] == cells[7] && cells[6] != "0", "predicted and cached: {cells:?}");
    }
}

#[test]
fn a_busy_port_is_one_sentence_and_exit_code_1() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let failed = warmpath(&["demo", "--once", "--port", &port]);
    let told = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{told}");
    assert!(told.contains(&port) && told.contains("another program listens there"), "{told}");
    assert_eq!(text(&failed.stdout), "", "no table of nothing");
}

#[test]
fn wrong_use_is_exit_code_2() {
    let wrong: [&[&str]; 7] = [
        &[],
        &["demo", "--requests", "0"],
        &["qualify"],
        &["serve", "--driver", "kqueue"],
        &["ctl", "rules", "invent"],
        &["events", "tail", "10.0.0.5:5557"],
        &["events", "tail", "tcp://10.0.0.5:5557", "--kind", "trtllm"],
    ];
    for arguments in wrong {
        assert_eq!(warmpath(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn help_of_every_verb_teaches_by_example() {
    for verb in [
        "serve",
        "demo",
        "ctl",
        "engine",
        "bench",
        "keys",
        "events",
        "events tail",
        "events replay",
        "qualify",
    ] {
        let words: Vec<&str> = verb.split(' ').chain(["--help"]).collect();
        let help = text(&warmpath(&words).stdout);
        assert!(help.contains("Examples:") && help.matches("warmpath ").count() >= 2, "{verb}: {help}");
    }
}

#[test]
fn ctl_without_a_gateway_names_the_socket_and_fails() {
    let failed = warmpath(&["ctl", "--socket", "no-such.sock", "ready"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("no-such.sock"), "{}", text(&failed.stderr));
}
