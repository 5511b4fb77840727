//! The door of a prefill engine: a listener at which decode engines take what was computed. One line of JSON each way.
//! Must never answer what the shelf did not.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{Knock, LINE, Parcel, UNKNOWN};
use crate::engine::Engine;
use crate::engine::faults::Door;

/// Answers at the door for as long as the engine's runtime lives.
pub(crate) async fn serve(engine: Arc<Engine>, listener: std::net::TcpListener) {
    let Ok(listener) = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener)) else {
        return;
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let engine = engine.clone();
        tokio::spawn(async move { guest(&engine, stream).await });
    }
}

async fn guest(engine: &Engine, mut stream: TcpStream) {
    if engine.faults.borrow().pd_door == Some(Door::Refuse) {
        return;
    }
    let (reading, mut writing) = stream.split();
    let mut reading = BufReader::new(reading.take(LINE));
    let mut line = String::new();
    if reading.read_line(&mut line).await.is_err() {
        return;
    }
    let Ok(knock) = serde_json::from_str::<Knock>(&line) else { return };
    let mut rest = String::new();
    let parcel = tokio::select! {
        biased;
        // Decode left: nothing else comes behind its line, and nothing is taken for it.
        _ = reading.read_line(&mut rest) => {
            if let Ok(room) = knock.name.parse() {
                engine.shelf.leave(room);
            }
            return;
        }
        parcel = answer(engine, &knock) => parcel,
    };
    if let Parcel::Blocks(blocks) = &parcel {
        engine.state().stats.pair.blocks_sent += blocks;
    }
    let mut bytes = serde_json::to_vec(&parcel).unwrap_or_default();
    bytes.push(b'\n');
    let _ = writing.write_all(&bytes).await;
}

async fn answer(engine: &Engine, knock: &Knock) -> Parcel {
    let mut faults = engine.faults.subscribe();
    let _ = faults.wait_for(|faults| faults.pd_door != Some(Door::Stall)).await;
    if engine.faults.borrow().pd_door == Some(Door::Forget) {
        return Parcel::Refused(UNKNOWN.into());
    }
    match knock.name.parse() {
        Ok(room) if knock.room => engine.shelf.join(room, knock.prompt).await,
        _ => engine.shelf.take(&knock.name, knock.prompt),
    }
}
