//! A thousand kills without warning while rules change: no acknowledged rule is lost, and none comes up that nobody asked
//! for. Owns the moments of the kills.

use crate::harness::{Client, Driver, Gateway, free_address, rule};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// Kills; `KILLS` says another number.
const KILLS: u64 = 1_000;

/// Rules that come and go under an address of their own each.
const RULES: usize = 8;

/// Names in force of a gateway that was started again.
fn names(gateway: &Gateway) -> BTreeSet<String> {
    let reply = gateway.admin("GET", "/netlox/v1/config/loadbalancer/all", "");
    let list = reply.json()["lbAttr"].clone();
    let name = |rule: &Value| rule["serviceArguments"]["name"].as_str().unwrap().to_string();
    list.as_array().unwrap().iter().map(name).collect()
}

/// Changes rules until the gateway is gone, and keeps what was acknowledged; how many changes.
fn change(admin: SocketAddr, vips: &[SocketAddr], round: usize, known: &mut BTreeSet<String>) -> u64 {
    let mut acknowledged = 0;
    for step in 0.. {
        let at = (round + step) % vips.len();
        let name = format!("rule-{at}");
        let (method, path, body) = match known.contains(&name) {
            true => ("DELETE", format!("/netlox/v1/config/loadbalancer/name/{name}"), String::new()),
            false => {
                let mut body = rule(vips[at], &[vips[0]]);
                body["serviceArguments"]["name"] = name.clone().into();
                ("POST", "/netlox/v1/config/loadbalancer".to_string(), body.to_string())
            }
        };
        let Ok(stream) = std::net::TcpStream::connect(admin) else { break };
        if Client::of(stream).try_admin(method, &path, &body) != Some(200) {
            break;
        }
        acknowledged += 1;
        if !known.remove(&name) {
            known.insert(name);
        }
    }
    acknowledged
}

#[test]
#[ignore = "a thousand starts of a gateway; half an hour"]
fn a_thousand_kills_lose_no_acknowledged_rule() {
    let kills = std::env::var("KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let vips: Vec<_> = (0..RULES).map(|_| free_address()).collect();
    let (mut folder, mut known) = (Gateway::folder(), BTreeSet::new());
    let mut acknowledged = 0_u64;
    for round in 0..kills {
        let gateway = Gateway::spawn(Driver::Epoll, folder, false, &["--shards", "1"]);
        let found = names(&gateway);
        // The one change that was on its way may or may not have been made.
        let apart: Vec<&String> = found.symmetric_difference(&known).collect();
        assert!(apart.len() <= 1, "round {round}: {apart:?} differ, of {known:?}");
        known = found;
        let moment = Duration::from_micros(round * 7_919 % 40_000);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(moment);
                gateway.signal(Signal::KILL);
            });
            acknowledged += change(gateway.admin, &vips, round as usize, &mut known);
        });
        folder = gateway.kill();
    }
    println!("{kills} kills, {acknowledged} acknowledged changes, none lost");
    assert!(acknowledged > kills / 4, "most rounds were killed before they changed anything");
    let _ = std::fs::remove_dir_all(folder);
}
