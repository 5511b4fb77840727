//! The show: a pool, a gateway before it, what was counted, and the screen. Owns the order of looking and drawing; must
//! never show a figure that no receipt, report or engine gave.

use super::board::Board;
use super::conversation::{Conversation, Manner};
use super::decision::{self, Decision, engine_name};
use super::gateway::Gateway;
use super::panel::panel;
use super::pool::{Facts, Pool, Side};
use super::screen::{Line, Screen, Style, wrapped};
use super::talk::{Script, Talk, send};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use warmpath_core::Nanos;
use warmpath_core::control::RankReport;
use warmpath_core::receipt::Receipt;
use warmpath_ring::clock;

/// Time between two pictures.
const EACH: Duration = Duration::from_millis(100);
/// Time between two looks at something waited for.
const LOOK: Duration = Duration::from_millis(2);
/// Without news for so long, all events have come.
const QUIET: Duration = Duration::from_millis(80);
/// The longest wait for news to end, and for a receipt.
const PATIENCE: Duration = Duration::from_secs(5);
/// Columns of a panel that is printed.
const WIDTH: usize = 80;
/// Time to read a sentence in.
const READING: Duration = Duration::from_millis(1200);
/// The longest time for the turns of a side, many times what a busy machine takes.
const COMPARISON: Duration = Duration::from_secs(300);
/// What ids of the acts' requests begin with.
const ACT: &str = "act";

/// Why the show does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Somebody wants it to end.
    Interrupted,
    /// Something did not happen as told.
    Fault(String),
    /// Something can't be done with these engines; the reason.
    NotRun(String),
}

impl From<String> for Halt {
    fn from(sentence: String) -> Halt {
        Halt::Fault(sentence)
    }
}

/// Something told.
enum Entry {
    /// What is done now.
    Heading(String),
    /// What came of it.
    Said(String),
    /// One request of the exact side.
    Decision(Decision),
}

/// The running show.
pub struct Show {
    /// The engines.
    pub pool: Box<dyn Pool>,
    /// What was counted.
    pub board: Board,
    /// What the sides are called.
    pub heads: [&'static str; 2],
    /// What is shown below the title.
    pub subtitle: String,
    gateway: Gateway,
    facts: Facts,
    screen: Screen,
    log: Vec<Entry>,
    /// Where what is told now begins in the log.
    scene: usize,
    printed: usize,
    begun: Nanos,
    drawn: Option<Instant>,
    /// Sides whose engines are looked at.
    counting: Vec<Side>,
    endpoints: [Vec<SocketAddr>; 2],
    /// Receipts of acts' requests that nobody asked for yet.
    acted: Vec<Receipt>,
}

impl Show {
    /// A show of these engines behind this gateway; each side is to answer so many requests.
    pub fn new(pool: Box<dyn Pool>, gateway: Gateway, plain: bool, wanted: u64) -> Show {
        let facts = pool.facts();
        Show {
            board: Board::new(wanted, facts.engines),
            endpoints: Side::BOTH.map(|side| pool.endpoints(side)),
            heads: ["ROUND ROBIN", "EXACT, BY BLOCKS"],
            subtitle: String::new(),
            facts,
            pool,
            gateway,
            screen: Screen::new(plain),
            log: Vec::new(),
            scene: 0,
            printed: 0,
            begun: clock::now(),
            drawn: None,
            counting: Vec::new(),
            acted: Vec::new(),
        }
    }

    /// What the engines are.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The gateway.
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// How requests of a side are made: where both sides are the same engines, each with a mark of its own.
    pub fn manner(&self, side: Side) -> Manner {
        let mark = if self.facts.is_shared { side as u64 + 1 } else { 0 };
        Manner { model: self.facts.model.clone(), scripted: !self.facts.is_shared, mark }
    }

    /// Says what is done now.
    pub fn announce(&mut self, text: impl Into<String>) -> Result<(), Halt> {
        self.tell(Entry::Heading(text.into()))
    }

    /// Says what was seen.
    pub fn say(&mut self, text: impl Into<String>) -> Result<(), Halt> {
        self.tell(Entry::Said(text.into()))
    }

    /// Tells, and where it is not kept on the screen gives time to read.
    fn tell(&mut self, entry: Entry) -> Result<(), Halt> {
        self.log.push(entry);
        self.pause(if self.screen.is_live() { READING } else { Duration::ZERO })
    }

    /// Sends the same conversations to both sides, and counts.
    pub fn compare(&mut self, script: &Script) -> Result<(), Halt> {
        let rounds: &[&[Side]] = match self.facts.is_shared {
            true => &[&[Side::Turns], &[Side::Exact]],
            false => &[&Side::BOTH],
        };
        for sides in rounds {
            let mut talks = Vec::new();
            for side in *sides {
                self.pool.begin(*side)?;
                let (to, manner) = (self.gateway.address(*side), self.manner(*side));
                talks.push(Talk::start(to, side.word(), &manner, script));
            }
            self.counting = sides.to_vec();
            let begun = Instant::now();
            while talks.iter_mut().any(Talk::goes_on) {
                self.tick(EACH)?;
                if begun.elapsed() > COMPARISON {
                    return Err(Halt::Fault(format!(
                        "not all turns were answered in {} s",
                        COMPARISON.as_secs()
                    )));
                }
            }
            self.settle()?;
            self.pause(EACH * 4)?;
            for talk in talks {
                talk.verdict(script.requests())?;
            }
        }
        self.counting.clear();
        self.scene = self.log.len();
        Ok(())
    }

    /// The panel as lines of their own, for where it is not on a screen.
    pub fn panel(&self) -> Vec<String> {
        panel(&self.board, self.heads, WIDTH, true)
            .iter()
            .map(|parts| parts.concat().trim_end().into())
            .collect()
    }

    /// The next turn of a conversation, by blocks; its receipt.
    pub fn ask(&mut self, conversation: &mut Conversation) -> Result<Receipt, Halt> {
        let (name, body) = conversation.ask(&self.manner(Side::Exact), true);
        let id = format!("{ACT}-{name}");
        let report = send(self.gateway.address(Side::Exact), &id, body)?;
        let begun = Instant::now();
        loop {
            self.look()?;
            if let Some(place) = self.acted.iter().position(|receipt| receipt.id == format!("{id}-0")) {
                let receipt = self.acted.swap_remove(place);
                self.tick(Duration::ZERO)?;
                return match (receipt.status, report.good) {
                    (200, 1) => Ok(receipt),
                    (status, _) => Err(Halt::Fault(format!("{name} was answered with {status}"))),
                };
            }
            if begun.elapsed() > PATIENCE {
                return Err(Halt::Fault(format!("the gateway has no receipt of {name}")));
            }
            self.tick(LOOK)?;
        }
    }

    /// The next turn of a conversation, sent to an engine past the gateway.
    pub fn ask_engine(&mut self, engine: usize, conversation: &mut Conversation) -> Result<(), Halt> {
        let (name, body) = conversation.ask(&self.manner(Side::Exact), true);
        let report = send(self.endpoints[Side::Exact as usize][engine], &name, body)?;
        self.tick(Duration::ZERO)?;
        match report.good {
            1 => Ok(()),
            _ => Err(Halt::Fault(format!("E{} did not answer {name}: {:?}", engine + 1, report.failures))),
        }
    }

    /// The place of the engine that a request of the exact side went to.
    pub fn went_to(&self, receipt: &Receipt) -> Result<usize, Halt> {
        let found = self.endpoints[Side::Exact as usize].iter().position(|at| Some(*at) == receipt.endpoint);
        found.ok_or_else(|| Halt::Fault(format!("{} went to no engine", receipt.id)))
    }

    /// An engine's name.
    pub fn name(&self, engine: usize) -> String {
        engine_name(self.endpoints[Side::Exact as usize][engine], &self.endpoints[Side::Exact as usize])
    }

    /// What the gateway knows of an engine's cache.
    pub fn known(&self, engine: usize) -> Result<RankReport, Halt> {
        let known = self.gateway.known(engine);
        known.ok_or_else(|| Halt::Fault(format!("the gateway follows no events of {}", self.name(engine))))
    }

    /// Waits until `done`; how long it took.
    pub fn wait_for(
        &mut self,
        limit: Duration,
        what: &str,
        mut done: impl FnMut(&mut Show) -> Result<bool, Halt>,
    ) -> Result<Duration, Halt> {
        let begun = Instant::now();
        while !done(self)? {
            if begun.elapsed() > limit {
                return Err(Halt::Fault(format!("within {} s not seen: {what}", limit.as_secs())));
            }
            self.tick(LOOK)?;
        }
        Ok(begun.elapsed())
    }

    /// Waits until the gateway knows all that the engines have told: where they have lists of their own, until these are
    /// what it knows.
    pub fn settle(&mut self) -> Result<(), Halt> {
        let begun = Instant::now();
        let is_in_step = |show: &Show| {
            (0..show.facts.engines).all(|engine| {
                let (held, known) = (show.pool.held(engine), show.gateway.inventory(engine));
                held.is_none() || known.is_none() || held == known
            })
        };
        self.quiet()?;
        while !is_in_step(self) && begun.elapsed() < PATIENCE {
            self.tick(LOOK)?;
        }
        Ok(())
    }

    /// Waits until no more events come.
    pub fn quiet(&mut self) -> Result<(), Halt> {
        let begun = Instant::now();
        let news = |show: &Show| -> Vec<_> {
            let known = (0..show.facts.engines).filter_map(|engine| show.gateway.known(engine));
            known.map(|rank| (rank.sequence, rank.stored, rank.removed, rank.waiting)).collect()
        };
        let mut before = news(self);
        while begun.elapsed() < PATIENCE {
            self.pause(QUIET)?;
            let now = news(self);
            if now == before {
                break;
            }
            before = now;
        }
        Ok(())
    }

    /// Lets time pass, so that a person can read.
    pub fn pause(&mut self, time: Duration) -> Result<(), Halt> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.tick(left.min(EACH))?;
            if left.is_zero() {
                return Ok(());
            }
        }
    }

    /// Lets a moment pass, looks, and draws if it is time.
    fn tick(&mut self, moment: Duration) -> Result<(), Halt> {
        std::thread::sleep(moment);
        if self.gateway.is_over() {
            return Err(Halt::Interrupted);
        }
        if moment >= EACH {
            self.look()?;
        }
        if self.drawn.is_none_or(|drawn| drawn.elapsed() >= EACH) || !self.screen.is_live() {
            self.draw()?;
        }
        Ok(())
    }

    /// Takes what is new.
    fn look(&mut self) -> Result<(), Halt> {
        for receipt in self.board.fresh(&self.gateway.reports()) {
            let side = Side::BOTH.into_iter().find(|side| belongs(&receipt.id, side.word()));
            if let Some(side) = side {
                self.board.side_mut(side).add(&receipt, &self.endpoints[side as usize]);
            }
            if side != Some(Side::Turns) {
                let endpoints = &self.endpoints[Side::Exact as usize];
                self.log.push(Entry::Decision(Decision::of(&receipt, self.begun, endpoints)));
            }
            if belongs(&receipt.id, ACT) {
                self.acted.push(receipt);
            }
        }
        for sentence in self.gateway.said() {
            self.log.push(Entry::Said(format!("warmpath: {sentence}")));
        }
        for side in self.counting.clone() {
            self.board.side_mut(side).counters = self.pool.counters(side)?;
        }
        Ok(())
    }

    fn draw(&mut self) -> Result<(), Halt> {
        self.drawn = Some(Instant::now());
        if self.screen.is_live() {
            let (columns, rows) = self.screen.size();
            let lines = self.picture(columns, rows);
            return Ok(self.screen.draw(&lines)?);
        }
        for entry in &self.log[self.printed..] {
            self.screen.print(&entry.plain())?;
        }
        self.printed = self.log.len();
        Ok(())
    }

    /// The whole screen: panel, what was told last, and how to end it.
    fn picture(&self, columns: usize, rows: usize) -> Vec<Line> {
        let plain = |text: String| vec![(Style::Plain, text)];
        let seconds = clock::now().saturating_sub(self.begun) / 1_000_000_000;
        let kind = &self.facts.kind;
        let title = format!("warmpath demo · {kind} · {seconds} s");
        let mut lines =
            vec![vec![(Style::Bold, title)], vec![(Style::Dim, self.subtitle.clone())], Vec::new()];
        let shows_engines = rows >= 24 + self.facts.engines;
        for [label, left, right] in panel(&self.board, self.heads, columns, shows_engines) {
            lines.push(vec![(Style::Plain, label), (Style::Left, left), (Style::Right, right)]);
        }
        lines.push(Vec::new());
        let room = rows.saturating_sub(lines.len() + 1);
        lines.extend(self.told(columns, room));
        lines.resize(rows.saturating_sub(1), plain(String::new()));
        lines.push(vec![(Style::Dim, "Ctrl-C ends it.".into())]);
        lines
    }

    /// The last of what was told, in so many rows, under the heads of a decision's columns; while conversations run,
    /// with the newest decision's reason below.
    fn told(&self, columns: usize, rows: usize) -> Vec<Line> {
        let mut lines = vec![vec![(Style::Dim, decision::head())]];
        let all: Vec<Line> = self.log[self.scene..].iter().flat_map(|entry| entry.lines(columns)).collect();
        let newest = match self.log.last() {
            Some(Entry::Decision(newest)) if !self.counting.is_empty() => newest,
            _ => {
                lines.extend(tail(all, rows.saturating_sub(1)));
                return lines;
            }
        };
        lines.extend(tail(all, rows.saturating_sub(4)));
        lines.resize(rows.saturating_sub(2), Vec::new());
        let why = wrapped(&newest.why, columns, "  ");
        lines.extend(why.into_iter().map(|line| vec![(Style::Dim, line)]));
        lines
    }

    /// Gives the terminal back, prints what was told apart from decisions, then `lines`.
    pub fn close(&mut self, lines: &[String]) -> Result<(), String> {
        self.screen.leave()?;
        if self.screen.is_live() {
            let columns = self.screen.size().0;
            for entry in self.log.iter().filter(|entry| !matches!(entry, Entry::Decision(_))) {
                for line in wrapped(&entry.plain(), columns, "   ") {
                    self.screen.print(&line)?;
                }
            }
        }
        lines.iter().try_for_each(|line| self.screen.print(line))
    }

    /// Serves on until somebody ends it.
    pub fn wait_for_end(&self) {
        while !self.gateway.is_over() {
            std::thread::sleep(EACH);
        }
    }

    /// Ends the gateway, then the engines.
    pub fn end(self) -> Result<(), String> {
        self.gateway.end()
    }
}

fn belongs(id: &str, word: &str) -> bool {
    id.strip_prefix(word).is_some_and(|rest| rest.starts_with('-'))
}

fn tail(lines: Vec<Line>, rows: usize) -> Vec<Line> {
    let skip = lines.len().saturating_sub(rows);
    lines.into_iter().skip(skip).collect()
}

impl Entry {
    /// On a screen so wide.
    fn lines(&self, columns: usize) -> Vec<Line> {
        let (style, text, indent) = match self {
            Entry::Heading(text) => (Style::Bold, text.clone(), "   "),
            Entry::Said(text) => (Style::Plain, format!("   {text}"), "   "),
            Entry::Decision(decision) => return vec![vec![(Style::Dim, decision.row.clone())]],
        };
        wrapped(&text, columns, indent).into_iter().map(|line| vec![(style, line)]).collect()
    }

    /// As a line of its own.
    fn plain(&self) -> String {
        match self {
            Entry::Heading(text) => format!("\n{text}"),
            Entry::Said(text) => format!("   {text}"),
            Entry::Decision(decision) => format!("{}  {}", decision.row, decision.why),
        }
    }
}
