//! One probe: a TCP connection, or an HTTP exchange on a connection of its own. Must never outlast its
//! bound, nor read more of an answer than it was allowed.

use super::Target;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use warmpath_core::Nanos;
use warmpath_core::rule::ProbeKind;

/// Bytes of an answer in which the expected text is looked for.
const ANSWER_MAX: usize = 64 << 10;

/// Asks once. An error is the reason why the endpoint counts as not healthy.
pub async fn once(target: &Target, bound: Nanos) -> Result<(), String> {
    let bound = Duration::from_nanos(bound);
    let asked = tokio::time::timeout(bound, ask(target)).await;
    asked.unwrap_or_else(|_| Err(format!("no answer within {} ms", bound.as_millis())))
}

async fn ask(target: &Target) -> Result<(), String> {
    let stream = TcpStream::connect(target.at).await.map_err(|e| format!("can't connect: {e}"))?;
    match &target.kind {
        ProbeKind::Tcp => Ok(()),
        ProbeKind::Http { path, codes, contains } => {
            let most = if contains.is_empty() { 0 } else { ANSWER_MAX };
            let (status, body) = get(stream, target.at, path, most).await?;
            if !codes.iter().any(|(low, high)| (*low..=*high).contains(&status)) {
                return Err(format!("{path} answers {status}"));
            }
            match holds(&body, contains.as_bytes()) {
                true => Ok(()),
                false => Err(format!("{path} answers {status} without the expected text")),
            }
        }
    }
}

/// The status and the body of a page of at most `most` bytes. An error is the reason why there is none.
pub async fn page(at: SocketAddr, path: &str, bound: Nanos, most: usize) -> Result<(u16, Bytes), String> {
    let exchange = async {
        let stream = TcpStream::connect(at).await.map_err(|e| format!("can't connect: {e}"))?;
        get(stream, at, path, most).await
    };
    let bound = Duration::from_nanos(bound);
    let asked = tokio::time::timeout(bound, exchange).await;
    asked.unwrap_or_else(|_| Err(format!("no answer within {} ms", bound.as_millis())))
}

/// A question beyond a plain `GET`.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Path and query.
    pub path: &'a str,
    /// What to `POST`, JSON; `None`: it is a `GET`.
    pub body: Option<&'a [u8]>,
    /// The data-parallel rank that is to serve it.
    pub rank: Option<u8>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Nobody listens there, or the connection was cut before an answer.
    Refused,
    /// Too late.
    Late,
    /// No HTTP, or longer than allowed.
    NoHttp,
}

/// The status and the body of an answer of at most `most` bytes; a redirect is an answer like any other.
pub async fn asked(
    at: SocketAddr,
    question: &Asked<'_>,
    bound: Nanos,
    most: usize,
) -> Result<(u16, Bytes), Missing> {
    let exchange = async {
        let stream = TcpStream::connect(at).await.map_err(|_| Missing::Refused)?;
        let request = request(at, question).map_err(|_| Missing::NoHttp)?;
        send(stream, request, most).await.map_err(|fault| match fault {
            Fault::Http(fault) if fault.is_parse() => Missing::NoHttp,
            Fault::Http(_) => Missing::Refused,
            Fault::Body(_) => Missing::NoHttp,
        })
    };
    tokio::time::timeout(Duration::from_nanos(bound), exchange).await.unwrap_or(Err(Missing::Late))
}

/// The status, and the body unless `most` is 0.
async fn get(stream: TcpStream, at: SocketAddr, path: &str, most: usize) -> Result<(u16, Bytes), String> {
    let request = request(at, &Asked { path, body: None, rank: None })?;
    send(stream, request, most).await.map_err(|fault| match fault {
        Fault::Http(fault) => format!("no HTTP answer: {fault}"),
        Fault::Body(fault) => fault,
    })
}

fn request(at: SocketAddr, question: &Asked<'_>) -> Result<Request<Full<Bytes>>, String> {
    let Asked { path, body, rank } = *question;
    let mut request = match body {
        None => Request::get(path),
        Some(_) => Request::post(path).header("Content-Type", "application/json"),
    };
    request = request.header("Host", at.to_string()).header("User-Agent", "warmpath-probe");
    if let Some(rank) = rank {
        request = request.header("X-Data-Parallel-Rank", rank.to_string());
    }
    let body = Full::new(Bytes::copy_from_slice(body.unwrap_or_default()));
    let request = request.header("Connection", "close").body(body);
    request.map_err(|e| format!("{path} is no path of a request: {e}"))
}

/// What went wrong on a connection.
enum Fault {
    Http(hyper::Error),
    Body(String),
}

/// The status, and the body unless `most` is 0.
async fn send(stream: TcpStream, request: Request<Full<Bytes>>, most: usize) -> Result<(u16, Bytes), Fault> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(Fault::Http)?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(Fault::Http)?;
        let status = answer.status().as_u16();
        let body = match most {
            0 => Bytes::new(),
            most => text(answer.into_body(), most).await.map_err(Fault::Body)?,
        };
        Ok((status, body))
    };
    // The connection does the work of the exchange and may end before it is looked at.
    let drive = async {
        let _ = connection.await;
        std::future::pending().await
    };
    tokio::select! {
        done = exchange => done,
        never = drive => never,
    }
}

async fn text(body: Incoming, most: usize) -> Result<Bytes, String> {
    let whole = Limited::new(body, most).collect().await;
    whole.map(|b| b.to_bytes()).map_err(|e| format!("the answer can't be read: {e}"))
}

fn holds(body: &[u8], wanted: &[u8]) -> bool {
    wanted.is_empty() || body.windows(wanted.len()).any(|w| w == wanted)
}
