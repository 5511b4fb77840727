//! The admin thread's life: boot, listen, serve, go down. Owns the runtime and the listeners; must never
//! return before the shards were told to end.

use crate::access::Tokens;
use crate::boot::boot;
use crate::breakers;
use crate::disk::{Disk, RealDisk};
use crate::down;
use crate::gateway::{Gateway, Outside};
use crate::health::run::follow;
use crate::serve;
use crate::telemetry;
use crate::watchdog::watch;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::LocalSet;

/// Where REST is served unless said otherwise.
pub const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 11111);
/// The unix socket unless said otherwise, in the working directory.
pub const DEFAULT_SOCKET: &str = "warmpath-state/ctl.sock";
/// The state directory unless said otherwise, in the working directory.
pub const DEFAULT_STATE_DIR: &str = "warmpath-state";

/// Between two questions for an engine's load: three samples before one is stale.
pub const SCRAPE_INTERVAL: Duration = Duration::from_secs(10);
/// The least of that.
const SCRAPE_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// What `warmpath serve` is told about the admin side.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where REST is served; loopback, unless there are tokens.
    pub admin: SocketAddr,
    /// The file of the tokens that REST over TCP asks for; `None`: it asks for none.
    pub admin_tokens: Option<PathBuf>,
    /// The unix socket of `warmpath ctl`.
    pub socket: PathBuf,
    /// Where accepted rules are kept.
    pub state_dir: PathBuf,
    /// Rules to create or replace at start.
    pub rules_file: Option<PathBuf>,
    /// How long readiness is off while connections are still accepted.
    pub lame_duck: Duration,
    /// How long requests may run on after that.
    pub drain_timeout: Duration,
    /// From one question for an engine's load to the next; at least 100 ms.
    pub scrape_interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            admin: DEFAULT_ADMIN,
            admin_tokens: None,
            socket: DEFAULT_SOCKET.into(),
            state_dir: DEFAULT_STATE_DIR.into(),
            rules_file: None,
            lame_duck: Duration::from_secs(3),
            drain_timeout: Duration::from_secs(300),
            scrape_interval: SCRAPE_INTERVAL,
        }
    }
}

/// Why the admin side could not start: one sentence with cause and cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminFault(pub String);

impl fmt::Display for AdminFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AdminFault {}

impl From<String> for AdminFault {
    fn from(sentence: String) -> Self {
        AdminFault(sentence)
    }
}

/// Boots, calls `started` with the address that REST is served at, serves until SIGTERM or SIGINT, goes down
/// in order and returns. Blocks the calling thread, which becomes the admin thread.
pub fn run(options: &Options, outside: Outside, started: impl FnOnce(SocketAddr)) -> Result<(), AdminFault> {
    let (tell, stop) = channel(2);
    run_until(options, outside, Box::new(RealDisk), started, stop, Some(tell))
}

/// [`run`] on `disk`, told to stop by `stop`; with `signals`, by SIGTERM and SIGINT through it.
pub(crate) fn run_until(
    options: &Options,
    outside: Outside,
    disk: Box<dyn Disk>,
    started: impl FnOnce(SocketAddr),
    stop: Receiver<()>,
    signals: Option<Sender<()>>,
) -> Result<(), AdminFault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("the admin thread's runtime can't start: {e}; raise the limit of open files"))?;
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        if let Some(tell) = signals {
            listen_for_signals(&tell)?;
        }
        serve_until(options, outside, disk, started, stop).await
    })
}

async fn serve_until(
    options: &Options,
    outside: Outside,
    disk: Box<dyn Disk>,
    started: impl FnOnce(SocketAddr),
    stop: Receiver<()>,
) -> Result<(), AdminFault> {
    // Listeners first: when another gateway has the port, its rules are not touched.
    let tokens = options.admin_tokens.as_deref().map(Tokens::read).transpose()?;
    let tcp = tcp_listener(options.admin, tokens.is_some()).await?;
    let (unix, _socket) = unix_listener(&options.socket).await?;
    let gateway = boot(options, outside, disk).await?;
    gateway.borrow().boot.notes.iter().for_each(|note| (gateway.borrow().outside.say)(note));
    let address = tcp.local_addr().map_err(|e| format!("the admin address is not known: {e}"))?;
    tokio::task::spawn_local(serve::tcp(tcp, gateway.clone(), tokens));
    tokio::task::spawn_local(serve::unix(unix, gateway.clone()));
    tokio::task::spawn_local(probe(&gateway.borrow()));
    tokio::task::spawn_local(scrape(&gateway.borrow(), options.scrape_interval));
    tokio::task::spawn_local(crate::attest::run::watch(gateway.clone()));
    tokio::task::spawn_local(watch(gateway.clone()));
    tokio::task::spawn_local(breakers::watch(gateway.clone()));
    tokio::task::spawn_local(crate::compat::watch(gateway.clone()));
    tokio::task::spawn_local(crate::transfers::watch(gateway.clone()));
    tokio::task::spawn_local(crate::trust::voice::watch(gateway.clone()));
    tokio::task::spawn_local(crate::profiles::watch(gateway.clone()));
    started(address);
    down::on_signal(options, &gateway, stop).await;
    Ok(())
}

/// The task that keeps probing what the rules say.
fn probe(gateway: &Gateway) -> impl Future<Output = ()> + use<> {
    follow(gateway.tables(), gateway.probers.clone(), gateway.outside.clone())
}

/// The task that keeps asking engines for their load and counters where rules need them.
fn scrape(gateway: &Gateway, interval: Duration) -> impl Future<Output = ()> + use<> {
    let interval = interval.max(SCRAPE_INTERVAL_MIN).as_nanos() as u64;
    telemetry::run::follow(gateway.tables(), gateway.scrapers.clone(), gateway.outside.clone(), interval)
}

async fn tcp_listener(address: SocketAddr, asks_tokens: bool) -> Result<TcpListener, String> {
    if !address.ip().is_loopback() && !asks_tokens {
        return Err(format!(
            "the admin address {address} is reached by others: name the tokens that are let in with --admin-tokens \
             FILE, or use --admin 127.0.0.1:{} and reach it through ssh",
            address.port()
        ));
    }
    TcpListener::bind(address).await.map_err(|e| {
        format!("the admin address {address} can't be listened on: {e}; choose another with --admin")
    })
}

/// Takes the socket's name away when the gateway ends.
struct SocketName(PathBuf);

impl Drop for SocketName {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listens with mode 0600. A socket file that nobody listens on is the leftover of a killed process.
async fn unix_listener(path: &Path) -> Result<(UnixListener, SocketName), String> {
    let fault = |e: &dyn fmt::Display| {
        format!("the control socket {} can't be used: {e}; choose another with --socket", path.display())
    };
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(fault(&e)),
        Ok(meta) if !meta.file_type().is_socket() => return Err(fault(&"it is a file of another kind")),
        Ok(_) => match tokio::net::UnixStream::connect(path).await {
            Ok(_) => return Err(fault(&"another gateway listens on it")),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(|e| fault(&e))?;
            }
            Err(e) => return Err(fault(&e)),
        },
    }
    let listener = private_socket(path).map_err(|e| fault(&e))?;
    Ok((listener, SocketName(path.into())))
}

/// Binds under a name that only this process knows, narrows the mode, then gives it its name: at no moment
/// can another user connect to it.
fn private_socket(path: &Path) -> io::Result<UnixListener> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let hidden = PathBuf::from(name);
    let listener = UnixListener::bind(&hidden)?;
    std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| std::fs::rename(&hidden, path))
        .inspect_err(|_| drop(std::fs::remove_file(&hidden)))?;
    Ok(listener)
}

fn listen_for_signals(tell: &Sender<()>) -> Result<(), String> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind).map_err(|e| format!("signals can't be listened for: {e}"))?;
        let tell = tell.clone();
        tokio::task::spawn_local(async move {
            while signals.recv().await.is_some() && tell.send(()).await.is_ok() {}
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod access_tests;
#[cfg(test)]
mod maintenance_tests;
#[cfg(test)]
mod matrix_tests;
#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod profile_tests;
#[cfg(test)]
mod rest_tests;
#[cfg(test)]
mod state_tests;
