//! HTTP to the gateway, over its unix socket or TCP, a connection for each call. Must never wait for ever, nor print a
//! token.

use super::{CtlArgs, CtlFault};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::Value;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;

/// Bound of one call.
const CALL_TIME: Duration = Duration::from_secs(30);

/// Where the gateway is.
enum Place {
    Socket(PathBuf),
    Tcp(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Socket(path) => write!(f, "{}", path.display()),
            Place::Tcp(server) => write!(f, "{server}"),
        }
    }
}

/// The client.
pub struct Client {
    place: Place,
    /// The token to present, never printed.
    token: Option<String>,
    runtime: Runtime,
}

impl Client {
    /// A client of the gateway that the arguments name.
    pub fn new(args: &CtlArgs) -> Result<Client, CtlFault> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| format!("no connection can be made: {e}"))?;
        let place = match &args.server {
            Some(host) if host.contains(':') => Place::Tcp(format!("[{host}]:{}", args.port)),
            Some(host) => Place::Tcp(format!("{host}:{}", args.port)),
            None => Place::Socket(args.socket.clone()),
        };
        Ok(Client { place, token: args.token_file.as_deref().map(token).transpose()?, runtime })
    }

    /// Status and JSON of an answer.
    pub fn call(&self, method: &str, path: &str, body: &str) -> Result<(u16, Value), CtlFault> {
        let (status, bytes) = self.whole(method, path, body)?;
        let json = serde_json::from_slice(&bytes).map_err(|e| {
            format!("{} answers {status} without JSON ({e}); is it a warmpath gateway?", self.place)
        })?;
        Ok((status, json))
    }

    /// The JSON of an accepted GET.
    pub fn get(&self, path: &str) -> Result<Value, CtlFault> {
        let (status, answer) = self.call("GET", path, "")?;
        accepted(status, answer)
    }

    /// The text of an accepted GET.
    pub fn text(&self, path: &str) -> Result<String, CtlFault> {
        let (status, bytes) = self.whole("GET", path, "")?;
        match status {
            200 => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            _ => Err(CtlFault(reason(status, &serde_json::from_slice(&bytes).unwrap_or_default()))),
        }
    }

    fn whole(&self, method: &str, path: &str, body: &str) -> Result<(u16, Bytes), CtlFault> {
        let bounded = async { tokio::time::timeout(CALL_TIME, self.exchange(method, path, body)).await };
        let late = |_| format!("the gateway at {} does not answer", self.place);
        Ok(self.runtime.block_on(bounded).map_err(late)??)
    }

    async fn exchange(&self, method: &str, path: &str, body: &str) -> Result<(u16, Bytes), String> {
        let name = &self.place;
        let unreached = |e: io::Error| {
            format!(
                "no gateway can be reached at {name}: {e}; start one with `warmpath serve`, or name its socket with --socket or its host with --server"
            )
        };
        let fault = |e: hyper::Error| format!("the gateway at {name} broke off: {e}");
        let mut sender = match name {
            Place::Socket(path) => sender(UnixStream::connect(path).await.map_err(unreached)?).await,
            Place::Tcp(server) => sender(TcpStream::connect(server).await.map_err(unreached)?).await,
        }
        .map_err(fault)?;
        let host = match name {
            Place::Socket(_) => "localhost",
            Place::Tcp(server) => server,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("Host", host)
            .header("Content-Type", "application/json");
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let request = request
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|e| format!("{method} {path} can't be asked: {e}"))?;
        let answer = sender.send_request(request).await.map_err(fault)?;
        let status = answer.status().as_u16();
        let whole = answer.into_body().collect().await.map_err(fault)?;
        Ok((status, whole.to_bytes()))
    }
}

async fn sender(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> hyper::Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// The token of a file, which may end with a line break.
fn token(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|e| format!("--token-file {}: can't be read: {e}", path.display()))?;
    Ok(text.trim().to_string())
}

/// The answer if it is one of success, else its reason.
pub fn accepted(status: u16, answer: Value) -> Result<Value, CtlFault> {
    match status {
        200..=299 => Ok(answer),
        _ => Err(CtlFault(reason(status, &answer))),
    }
}

/// A value as it stands in a path or query.
pub fn encoded(value: &str) -> PercentEncode<'_> {
    utf8_percent_encode(value, NON_ALPHANUMERIC)
}

/// The sentence of an error envelope.
pub fn reason(status: u16, answer: &Value) -> String {
    let said = answer["result"].as_str().or(answer["message"].as_str());
    format!("refused ({status}): {}", said.unwrap_or("no reason given"))
}
