//! HTTP over the gateway's unix socket, a connection for each call. Must never wait for ever.

use super::CtlFault;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

/// Bound of one call.
const CALL_TIME: Duration = Duration::from_secs(30);

/// The client.
pub struct Client {
    socket: PathBuf,
    runtime: Runtime,
}

impl Client {
    /// A client of the gateway at `socket`.
    pub fn new(socket: &Path) -> Result<Client, CtlFault> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| format!("no connection can be made: {e}"))?;
        Ok(Client { socket: socket.into(), runtime })
    }

    /// Status and JSON of an answer.
    pub fn call(&self, method: &str, path: &str, body: &str) -> Result<(u16, Value), CtlFault> {
        let bounded = async { tokio::time::timeout(CALL_TIME, self.exchange(method, path, body)).await };
        let late = |_| format!("the gateway at {} does not answer", self.socket.display());
        let (status, bytes) = self.runtime.block_on(bounded).map_err(late)??;
        let json = serde_json::from_slice(&bytes).map_err(|e| {
            format!(
                "{} answers {status} without JSON ({e}); is it a warmpath gateway?",
                self.socket.display()
            )
        })?;
        Ok((status, json))
    }

    /// The JSON of an accepted GET.
    pub fn get(&self, path: &str) -> Result<Value, CtlFault> {
        let (status, answer) = self.call("GET", path, "")?;
        accepted(status, answer)
    }

    async fn exchange(&self, method: &str, path: &str, body: &str) -> Result<(u16, Bytes), String> {
        let name = self.socket.display();
        let stream = UnixStream::connect(&self.socket).await.map_err(|e| {
            format!("no gateway can be reached at {name}: {e}; start one with `warmpath serve`, or name its socket with --socket")
        })?;
        let fault = |e: hyper::Error| format!("the gateway at {name} broke off: {e}");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(fault)?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Host", "localhost")
            .header("Content-Type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|e| format!("{method} {path} can't be asked: {e}"))?;
        let answer = sender.send_request(request).await.map_err(fault)?;
        let status = answer.status().as_u16();
        let whole = answer.into_body().collect().await.map_err(fault)?;
        Ok((status, whole.to_bytes()))
    }
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
