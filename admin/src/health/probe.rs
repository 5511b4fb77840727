//! One probe: a TCP connection, or an HTTP exchange on a connection of its own. Must never outlast its
//! bound, nor read more of an answer than it was allowed.

use super::Target;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
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

/// The status, and the body unless `most` is 0.
async fn get(stream: TcpStream, at: SocketAddr, path: &str, most: usize) -> Result<(u16, Bytes), String> {
    let fault = |e: hyper::Error| format!("no HTTP answer: {e}");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(fault)?;
    let request = Request::get(path)
        .header("Host", at.to_string())
        .header("User-Agent", "warmpath-probe")
        .header("Connection", "close")
        .body(Empty::<Bytes>::new())
        .map_err(|e| format!("{path} is no path of a request: {e}"))?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(fault)?;
        let status = answer.status().as_u16();
        let body = if most > 0 { text(answer.into_body(), most).await? } else { Bytes::new() };
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
