//! HTTP for the admin API over TCP and the unix socket: one router for both. Owns the bounds of a request
//! (1 MiB body, deadlines for head and body, connections at once) and who may ask over TCP; must never
//! run on a shard's thread.

use crate::access::Tokens;
use crate::answer::Answer;
use crate::change::change;
use crate::gateway::Gateway;
use crate::refusal::Refusal;
use crate::rest::maintenance;
use crate::routes::{self, Call, Handler};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::RefCell;
use std::convert::Infallible;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use warmpath_core::control::{KvPlane, ShardReport};

/// Bytes of a request body that are accepted.
pub const BODY_MAX: usize = 1 << 20;
/// Time for a request head, and again for its body.
const READ_TIME: Duration = Duration::from_secs(10);
/// Admin connections served at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 256;
/// Rest after a failed accept (out of file descriptors), so that it does not spin.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// The state, shared by the tasks of the one admin thread. Never borrowed across an await.
pub type Shared = Rc<RefCell<Gateway>>;

/// Where a request came in.
#[derive(Clone)]
enum Door {
    /// Reachable by whatever runs on the machine, browsers among it, or where tokens are asked for by others too.
    Tcp(Option<Rc<Tokens>>),
    /// Reachable by its owner.
    Unix,
}

/// Serves the TCP listener until dropped; where there are `tokens`, those alone who have one.
pub async fn tcp(listener: TcpListener, gateway: Shared, tokens: Option<Tokens>) {
    let door = Door::Tcp(tokens.map(Rc::new));
    let seats = Rc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let seat = Seat::take(&seats).await;
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::task::spawn_local(connection(stream, door.clone(), gateway.clone(), seat));
            }
            Err(_) => tokio::time::sleep(ACCEPT_REST).await,
        }
    }
}

/// Serves the unix socket until dropped. Its seats are its own: clients over TCP can't shut the operator out.
pub async fn unix(listener: UnixListener, gateway: Shared) {
    let seats = Rc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let seat = Seat::take(&seats).await;
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::task::spawn_local(connection(stream, Door::Unix, gateway.clone(), seat));
            }
            Err(_) => tokio::time::sleep(ACCEPT_REST).await,
        }
    }
}

/// One of the connections that may be open; given back when dropped.
struct Seat(Rc<Semaphore>);

impl Seat {
    async fn take(seats: &Rc<Semaphore>) -> Seat {
        if let Ok(permit) = seats.acquire().await {
            permit.forget();
        }
        Seat(seats.clone())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    door: Door,
    gateway: Shared,
    _seat: Seat,
) {
    let service = service_fn(move |request| {
        let (door, gateway) = (door.clone(), gateway.clone());
        async move { Ok::<_, Infallible>(response(answer(request, door, gateway).await)) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(READ_TIME);
    // A connection that breaks is its client's affair; nothing is lost with it.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, door: Door, gateway: Shared) -> Answer {
    let answered = handle(request, door, gateway).await;
    answered.unwrap_or_else(|refusal| Answer::from(&refusal))
}

async fn handle(request: Request<Incoming>, door: Door, gateway: Shared) -> routes::Answered {
    check_caller(&door, request.headers())?;
    let (route, params) = routes::find(asked(request.method()), request.uri().path())?;
    let query = routes::query(request.uri().query().unwrap_or(""));
    let call = Call { params, query, body: whole_body(request.into_body(), route.body_max).await? };
    match route.handler {
        Handler::Own(handler) => handler(&gateway.borrow(), &call),
        Handler::Switch(handler) => handler(&mut gateway.borrow_mut(), &call),
        Handler::Change(handler) => {
            let want = |gateway: &Gateway| {
                maintenance::check_change(gateway, route)?;
                handler(gateway, &call)
            };
            change(&gateway, want).await
        }
        Handler::Reports(handler) => {
            let reports = reports(&gateway).await;
            handler(&gateway.borrow(), &call, &reports)
        }
        Handler::AllReports(handler) => {
            let (reports, kv) = tokio::join!(reports(&gateway), ask_kv(&gateway, |kv| kv.report()));
            handler(&gateway.borrow(), &call, &reports, kv.flatten().as_ref())
        }
        Handler::Kv(handler) => {
            let ask = handler(&gateway.borrow(), &call)?;
            ask_kv(&gateway, ask).await.unwrap_or(Err(Refusal::KvSilent))
        }
    }
}

/// HEAD is answered as GET; hyper leaves the body out (RFC 9110 section 9.3.2).
fn asked(method: &Method) -> &str {
    if method == Method::HEAD { "GET" } else { method.as_str() }
}

/// A report of every shard, asked for beside the admin thread: a slow shard delays the one who asks, not
/// probes and other requests.
pub async fn reports(gateway: &Shared) -> Vec<ShardReport> {
    let data_plane = gateway.borrow().outside.data_plane.clone();
    tokio::task::spawn_blocking(move || data_plane.reports()).await.unwrap_or_default()
}

/// Asks the event core beside the admin thread. A seat is kept until it has answered, even if the client has
/// left meanwhile. `None` if the question broke.
pub(crate) async fn ask_kv<T: Send + 'static>(
    gateway: &Shared,
    ask: impl FnOnce(&dyn KvPlane) -> T + Send + 'static,
) -> Option<T> {
    let (kv, seats) = (gateway.borrow().outside.kv.clone(), gateway.borrow().kv_seats.clone());
    let seat = seats.acquire_owned().await.ok()?;
    let asked = tokio::task::spawn_blocking(move || {
        let answer = ask(&*kv);
        drop(seat);
        answer
    });
    asked.await.ok()
}

async fn whole_body(body: Incoming, most: usize) -> Result<Vec<u8>, Refusal> {
    let limited = Limited::new(body, most);
    match tokio::time::timeout(READ_TIME, limited.collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes().into()),
        Ok(Err(e)) if e.is::<LengthLimitError>() => Err(Refusal::TooLarge(most)),
        Ok(Err(_)) | Err(_) => Err(Refusal::Incomplete),
    }
}

/// A token can't be had by a web page, so that who has one is asked for nothing more.
fn check_caller(door: &Door, headers: &HeaderMap) -> Result<(), Refusal> {
    match door {
        Door::Unix => Ok(()),
        Door::Tcp(None) => check_origin(headers),
        Door::Tcp(Some(tokens)) if tokens.let_in(headers) => Ok(()),
        Door::Tcp(Some(_)) => Err(Refusal::NoToken),
    }
}

/// A web page in the operator's browser can reach this port: by a cross-site request, which says its
/// `Origin`, or by a name of its own that resolves to this machine, which stands in `Host`.
fn check_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.contains_key(ORIGIN) {
        return Err(Refusal::Foreign("requests of web pages (Origin) are not served"));
    }
    match headers.get(HOST).map(|h| h.to_str().unwrap_or("")) {
        Some(host) if !is_own_name(host) => {
            Err(Refusal::Foreign("Host must be an IP address or localhost: names may be a web page's own"))
        }
        _ => Ok(()),
    }
}

fn is_own_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    if let Some((name, value)) = answer.header
        && let Ok(value) = HeaderValue::try_from(value)
    {
        headers.insert(name, value);
    }
    response
}
