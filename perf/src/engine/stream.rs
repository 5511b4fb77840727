//! A streamed answer: server-sent events, each in a chunk and a write of its own, as the engines
//! send them. Must never send `[DONE]` after a fault.

use tokio::time::Instant;

use super::faults::Stall;
use super::generate::{End, Job, Run, past_stall, wait};
use super::http::Conn;
use super::openai::Piece;
use super::reply::{self, Framing};
use super::text::Token;

/// Why a stream stopped before its end.
enum Stop {
    Gone,
    Fault,
}

impl From<std::io::Error> for Stop {
    fn from(_: std::io::Error) -> Self {
        Stop::Gone
    }
}

struct Stream<'a> {
    job: &'a Job<'a>,
    conn: &'a mut Conn,
    framing: Framing,
    sent: u64,
}

/// Sends the whole stream, from the head at the first token's time to the end of the framing.
pub async fn send(job: &Job<'_>, run: &mut Run<'_>, conn: &mut Conn, cached: u64) -> End {
    let framing = if job.manner.minor == 0 { Framing::UntilClose } else { Framing::Chunked };
    let mut stream = Stream { job, conn, framing, sent: 0 };
    match stream.all(run, cached).await {
        Ok(()) => End::Finished,
        Err(Stop::Gone) => End::Aborted,
        Err(Stop::Fault) => End::Faulted,
    }
}

/// A token event of one choice with its text left out: streams are most of an engine's work, and
/// building the same JSON for each token would be most of a stream's.
struct Template {
    before: String,
    after: String,
}

impl Template {
    /// `None` where more than the text differs from token to token.
    fn of(job: &Job, choice: usize) -> Option<Self> {
        if job.answer.token_ids {
            return None;
        }
        let marked = Piece::Token(choice, Token { id: 0, text: "\u{1}" }, None);
        let json = job.engine.config.kind.chunk(&job.answer, marked).to_string();
        let (before, after) = json.split_once("\\u0001")?;
        Some(Template { before: before.to_owned(), after: after.to_owned() })
    }

    /// The event; generated text needs no JSON escapes.
    fn filled(&self, token: Token) -> String {
        [&self.before, token.text, &self.after].concat()
    }
}

impl Stream<'_> {
    async fn all(&mut self, run: &mut Run<'_>, cached: u64) -> Result<(), Stop> {
        let (job, kind) = (self.job, self.job.engine.config.kind);
        let head = reply::head(job.engine, job.manner, 200, kind.stream_type(), self.framing);
        self.conn.write(&head).await?;
        self.switches().await?;
        if job.ask.chat {
            self.event(Piece::Role).await?;
        }
        self.tokens(run).await?;
        if job.ask.include_usage {
            self.event(Piece::Usage(job.usage(cached))).await?;
        }
        run.end(End::Finished);
        self.write("[DONE]").await?;
        if self.framing == Framing::Chunked {
            self.conn.write(b"0\r\n\r\n").await?;
        }
        Ok(())
    }

    async fn tokens(&mut self, run: &mut Run<'_>) -> Result<(), Stop> {
        let (job, kind) = (self.job, self.job.engine.config.kind);
        let templates: Vec<_> = (0..job.ask.prompts.len()).map(|choice| Template::of(job, choice)).collect();
        let mut due = Instant::now();
        for index in 0..job.length {
            if index > 0 {
                due += job.engine.config.timing.itl;
                if !wait(self.conn, due).await {
                    return Err(Stop::Gone);
                }
            }
            run.step(job, index);
            let last = index + 1 == job.length;
            for (choice, template) in templates.iter().enumerate() {
                let reason = Some(job.finish).filter(|_| last && !kind.finishes_apart());
                let token = job.token(choice, index);
                job.engine.state().stats.tokens.generated += 1;
                match template {
                    Some(template) if reason.is_none() => self.send(&template.filled(token)).await?,
                    _ => self.event(Piece::Token(choice, token, reason)).await?,
                }
                if last && kind.finishes_apart() {
                    self.event(Piece::Finish(choice, job.finish)).await?;
                }
            }
        }
        Ok(())
    }

    /// Sends one event in the kind's shape, then lets the switches act.
    async fn event(&mut self, piece: Piece<'_>) -> Result<(), Stop> {
        let json = self.job.engine.config.kind.chunk(&self.job.answer, piece).to_string();
        self.send(&json).await
    }

    async fn send(&mut self, json: &str) -> Result<(), Stop> {
        self.write(json).await?;
        self.sent += 1;
        self.switches().await
    }

    async fn write(&mut self, data: &str) -> Result<(), Stop> {
        let event = format!("data: {data}\n\n");
        let bytes = match self.framing {
            Framing::Chunked => format!("{:x}\r\n{event}\r\n", event.len()),
            _ => event,
        };
        Ok(self.conn.write(bytes.as_bytes()).await?)
    }

    /// The faults of a stream, looked at after each event.
    async fn switches(&mut self) -> Result<(), Stop> {
        let engine = self.job.engine;
        let (close_after, bad) = {
            let faults = engine.faults.borrow();
            (faults.close_mid_stream_after, faults.bad_framing)
        };
        if close_after.is_some_and(|limit| self.sent >= limit) {
            return Err(Stop::Fault);
        }
        if bad && self.sent == 1 {
            self.conn.write(b"zz\r\ndata: broken\n\n\r\n").await?;
            return Err(Stop::Fault);
        }
        if self.sent == 1 && !past_stall(engine, self.conn, Stall::MidStream).await {
            return Err(Stop::Gone);
        }
        Ok(())
    }
}
