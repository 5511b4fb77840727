//! Accepting connections and walking each through its requests.
//! Must never hold the engine's lock across an await.

use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::faults::Health;
use super::generate;
use super::http::{Conn, Head, Trouble};
use super::kinds::{Command, Reply, View};
use super::publish::endpoint::Door;
use super::publish::sockets;
use super::reply::{self, Manner};
use super::{Engine, sim, transfer};

/// Pause before listening or accepting is tried again.
const RETRY: Duration = Duration::from_millis(10);

/// Longest body of an admin request in bytes; a longer one counts as empty.
const MAX_ADMIN_BODY: usize = 64 * 1024;

/// What becomes of a connection after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The next request may come.
    Keep,
    /// Closed as the answer said.
    Close,
    /// Closed with request bytes unread: they are drained so that the answer arrives.
    Linger,
    /// A fault: closed without a word, by reset if the `rst` switch is on.
    Cut,
}

/// Runs the engine until `stop` turns true.
pub async fn run(
    engine: Arc<Engine>,
    (listener, transfer): (Option<StdListener>, Option<StdListener>),
    doors: Vec<Door>,
    mut stop: watch::Receiver<bool>,
) {
    for (rank, door) in doors.into_iter().enumerate() {
        sockets::serve(&engine, rank, door);
    }
    if let Some(door) = transfer {
        tokio::spawn(transfer::serve(engine.clone(), door));
    }
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => {}
        () = listen(engine, listener) => {}
    }
}

/// Listens, closes the listener while the `refuse` switch is on, listens again.
async fn listen(engine: Arc<Engine>, first: Option<StdListener>) {
    let mut faults = engine.faults.subscribe();
    let mut listener = first.and_then(|first| adopt(first).ok());
    loop {
        let refuse = faults.borrow_and_update().refuse;
        if refuse {
            listener = None;
            until_lifted(&engine, &mut faults).await;
        } else if let Some(open) = &listener {
            tokio::select! {
                accepted = open.accept() => admit(&engine, accepted).await,
                _ = faults.changed() => {}
            }
        } else {
            listener = TcpListener::bind(engine.addr).await.ok();
            if listener.is_none() {
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

fn adopt(listener: StdListener) -> std::io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Waits until the `refuse` switch is off, turning it off itself after `refuse_ms`.
async fn until_lifted(engine: &Engine, faults: &mut watch::Receiver<super::faults::Faults>) {
    let wait = faults.borrow().refuse_ms;
    let lifted = faults.wait_for(|faults| !faults.refuse);
    let Some(wait) = wait else {
        let _ = lifted.await;
        return;
    };
    if tokio::time::timeout(Duration::from_millis(wait), lifted).await.is_err() {
        engine.faults.send_modify(|faults| faults.refuse = false);
    }
}

async fn admit(engine: &Arc<Engine>, accepted: std::io::Result<(TcpStream, std::net::SocketAddr)>) {
    let Ok((stream, _)) = accepted else {
        tokio::time::sleep(RETRY).await;
        return;
    };
    let _ = stream.set_nodelay(true);
    let open = Open::count(engine.clone());
    tokio::spawn(async move { connection(&open.0, Conn::new(stream)).await });
}

/// Counts a connection as open for as long as it lives, also when its task is dropped.
struct Open(Arc<Engine>);

impl Open {
    fn count(engine: Arc<Engine>) -> Self {
        let mut state = engine.state();
        state.stats.accepted += 1;
        state.stats.open += 1;
        drop(state);
        Open(engine)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.state().stats.open -= 1;
    }
}

async fn connection(engine: &Engine, mut conn: Conn) {
    let mut answered = 0;
    let ending = loop {
        let head = match next_head(engine, &mut conn, answered).await {
            Ok(Some(head)) => head,
            Ok(None) | Err(Trouble::Gone) => return,
            Err(Trouble::Bad(words)) => break bad_request(engine, &mut conn, words).await,
        };
        answered += 1;
        let ending = request(engine, &mut conn, &head, answered).await;
        let silent = engine.faults.borrow().keepalive_close_after.is_some_and(|limit| answered >= limit);
        match ending {
            Ending::Keep if silent && !sim::owns(&head.path) => break Ending::Cut,
            Ending::Keep => {}
            other => break other,
        }
    };
    match ending {
        Ending::Linger => conn.close().await,
        Ending::Cut if engine.faults.borrow().rst => conn.reset(),
        _ => drop(conn),
    }
}

/// The next head; `None` also when the connection was idle for too long after a first answer.
async fn next_head(engine: &Engine, conn: &mut Conn, answered: u64) -> Result<Option<Head>, Trouble> {
    if answered == 0 {
        return conn.read_head().await;
    }
    let idle = engine.config.keep_alive.idle;
    tokio::time::timeout(idle, conn.read_head()).await.unwrap_or(Ok(None))
}

/// uvicorn's answer to what is not HTTP: 400 in plain text, then the end.
async fn bad_request(engine: &Engine, conn: &mut Conn, words: &str) -> Ending {
    engine.state().stats.malformed += 1;
    let manner = Manner { keep: false, minor: 1, head_only: false };
    let body = format!("Invalid HTTP request received: {words}.");
    let reply = Reply { status: 400, content_type: "text/plain; charset=utf-8", body: body.into_bytes() };
    send(engine, conn, manner, &reply).await;
    Ending::Linger
}

async fn request(engine: &Engine, conn: &mut Conn, head: &Head, answered: u64) -> Ending {
    let limit = engine.config.keep_alive.requests;
    let keep = head.keep_alive() && (limit == 0 || answered < limit);
    let manner = Manner { keep, minor: head.minor, head_only: head.method == "HEAD" };
    if sim::owns(&head.path) {
        return administer(engine, conn, head, manner).await;
    }
    engine.state().stats.saw(&head.method, &head.path, &head.raw);
    let faults = engine.faults.borrow().clone();
    let inference = engine.config.kind.inference(&head.path).filter(|_| head.method == "POST");
    if faults.resets_at_head() {
        return Ending::Cut;
    }
    if faults.early_response && inference.is_some() {
        let refusal = engine.config.kind.error(400, "BadRequestError", "simulated early response");
        send(engine, conn, Manner { keep: false, ..manner }, &refusal).await;
        return if faults.rst { Ending::Cut } else { Ending::Linger };
    }
    conn.slow_read = faults.slow_read;
    let body = match conn.read_body(head, engine.config.sink_over).await {
        Ok(body) => body,
        Err(Trouble::Gone) => return Ending::Close,
        Err(Trouble::Bad(words)) => return bad_request(engine, conn, words).await,
    };
    match inference {
        Some(chat) => generate::answer(engine, conn, head, manner, (chat, body)).await,
        None => page(engine, conn, head, manner, &body.bytes).await,
    }
}

async fn administer(engine: &Engine, conn: &mut Conn, head: &Head, manner: Manner) -> Ending {
    conn.slow_read = None;
    match conn.read_body(head, MAX_ADMIN_BODY).await {
        Ok(body) => send(engine, conn, manner, &sim::answer(engine, head, &body.bytes)).await,
        Err(_) => Ending::Close,
    }
}

async fn page(engine: &Engine, conn: &mut Conn, head: &Head, manner: Manner, body: &[u8]) -> Ending {
    let kind = engine.config.kind;
    let mut reply = None;
    if kind.is_health(&head.path) {
        match health(engine, conn).await {
            Some(Health::Ok) => {}
            Some(_) => reply = Some(kind.unhealthy()),
            None => return Ending::Close,
        }
    }
    let reply = reply.or_else(|| command(engine, head)).unwrap_or_else(|| {
        let stats = engine.stats();
        let started = engine.state().process.started;
        kind.page(
            &head.method,
            &head.path,
            body,
            View {
                config: &engine.config,
                stats: &stats,
                started,
                sources: &engine.sources,
                door: engine.door,
            },
        )
    });
    send(engine, conn, manner, &reply).await
}

/// The answer of a page that changes the engine's state.
fn command(engine: &Engine, head: &Head) -> Option<Reply> {
    let kind = engine.config.kind;
    match kind.command(&head.method, &head.path)? {
        Command::Drain => Some(Reply::json(200, kind.json_type(), &engine.drain())),
        Command::Flush => {
            engine.clear_caches();
            Some(kind.flushed())
        }
    }
}

/// The health switch, once it is not `stall`; `None` when the client left before.
async fn health(engine: &Engine, conn: &mut Conn) -> Option<Health> {
    let mut faults = engine.faults.subscribe();
    let health = tokio::select! {
        faults = faults.wait_for(|faults| faults.health != Health::Stall) => faults.ok().map(|f| f.health),
        () = conn.gone() => None,
    };
    health
}

/// Sends a whole answer.
pub async fn send(engine: &Engine, conn: &mut Conn, manner: Manner, reply: &Reply) -> Ending {
    if reply.status >= 400 {
        engine.state().stats.errors += 1;
    }
    match conn.write(&reply::whole(engine, manner, reply)).await {
        Ok(()) if manner.keep => Ending::Keep,
        _ => Ending::Close,
    }
}
