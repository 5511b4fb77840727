//! The relay under measurement as a child process. Owns its life, its address and its CPU time; must end that
//! child and no other process, whatever happens.

use crate::Variant;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

/// A running relay; ends with this value.
pub struct Relay {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Relay {
    /// Starts this program again as a relay of that kind. Errors: it did not start to listen.
    pub fn start(variant: Variant, upstream: SocketAddr) -> io::Result<Relay> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["relay", variant.name(), &upstream.to_string()]).stdout(Stdio::piped());
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut relay = Relay { child: command.spawn()?, address: unknown };
        let mut line = String::new();
        if let Some(output) = relay.child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let silent = |_| io::Error::other(format!("{} does not listen", variant.name()));
        relay.address = line.trim().parse().map_err(silent)?;
        Ok(relay)
    }

    /// Nanoseconds on a CPU so far, user and kernel, of all its threads that live.
    pub fn cpu_ns(&self) -> io::Result<u64> {
        let mut sum = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            let first = text.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
            sum += first.ok_or_else(|| io::Error::other("no scheduler statistics in this kernel"))?;
        }
        Ok(sum)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
