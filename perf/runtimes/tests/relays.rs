//! Every relay of the study carries every workload byte for byte, and none outlives the measurement.
#![allow(clippy::unwrap_used)] // of test code outside a `#[cfg(test)]` module clippy knows nothing

use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Processes of a group, which is where a measurement's relays are, also once it has ended.
fn members_of(group: u32) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = processes.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
    // After the name in brackets: state, parent, group.
    let groups = stats.filter_map(|stat| stat.rsplit(") ").next()?.split(' ').nth(2)?.parse::<u32>().ok());
    groups.filter(|&of| of == group).count()
}

#[test]
fn a_short_measurement_has_no_failure_and_leaves_nothing_running() {
    let file = std::env::temp_dir().join(format!("warmpath-runtimes-{}.json", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_warmpath-runtimes"));
    let mut measurement = command.args(["measure", "1", "0.1"]).arg(&file).process_group(0).spawn().unwrap();
    assert!(members_of(measurement.id()) > 0);
    let status = measurement.wait().unwrap();
    assert!(status.success());
    assert_eq!(members_of(measurement.id()), 0);
    let figures: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    let series = figures["series"].as_array().unwrap();
    assert_eq!(series.len(), 15);
    for one in series {
        assert!(one["runs"][0]["cpu_us"].as_f64().unwrap() > 0.0, "{one}");
        assert!(one["runs"][0]["per_second"].as_f64().unwrap() > 0.0, "{one}");
    }
}

#[test]
fn a_relay_without_upstream_closes_its_client_instead_of_hanging() {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::time::Duration;
    for relay in ["uring", "epoll", "monoio-flags", "monoio", "glommio"] {
        // A port that was free a moment ago and that nobody listens on.
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_warmpath-runtimes"));
        command.args(["relay", relay, &nobody.to_string()]).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let mut client = std::net::TcpStream::connect(address.trim()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let ended = client.read(&mut [0; 16]);
        child.kill().unwrap();
        child.wait().unwrap();
        let reset = |e: &std::io::Error| e.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(matches!(&ended, Ok(0)) || ended.as_ref().is_err_and(reset), "{relay}: {ended:?}");
    }
}
