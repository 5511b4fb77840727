//! `warmpath demo`: the same conversations in turn and by blocks, side by side, then an engine's restart, an eviction
//! and a lost message. Owns the order of the show and its verdict; must never print a figure that no receipt, report or
//! engine gave.

mod acts;
mod board;
mod conversation;
mod decision;
mod gateway;
mod panel;
mod pool;
mod real;
mod screen;
mod show;
mod simulated;
mod summary;
mod talk;

use acts::Outcome;
use clap::Args;
use gateway::{Gateway, Wanted};
use pool::{Pool, Side};
use real::Real;
use show::{Halt, Show};
use simulated::Simulated;
use std::path::PathBuf;
use std::time::Duration;
use talk::Script;

/// See the gateway at work: the same conversations in turn and by blocks, then what befalls engines.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  warmpath demo                  side by side, live; under a minute
  warmpath demo --stay           then serves on, for `warmpath ctl`
  warmpath demo --plain | less   a line for each decision, with its reason
  warmpath demo --once           short, for scripts
  warmpath demo --exact-mode 0   without exact routing, where it must fail
  warmpath demo --real           over two real vLLM (tests/real); minutes

Exit code 0: exact routing computed far fewer prompt tokens than round robin, and each act went as told.

Columns of a decision: TO, the engine (E1 …). TIER and REASON as in `warmpath ctl explain`. OVERLAP: leading blocks of \
the prompt that the engine held, of those it has. EXPECTED: tokens that the gateway predicted in the engine's cache; \
FOUND: that the engine's answer says were there. LOAD: requests in flight at the engine, and how many it might have.")]
pub struct DemoArgs {
    /// Fewer conversations, in plain lines
    #[arg(long)]
    once: bool,
    /// Lines instead of a picture, as where standard output is no terminal
    #[arg(long)]
    plain: bool,
    /// Simulated engines of each side
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=8))]
    engines: u16,
    /// Port of the side by blocks [default: a free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// kvExactMode of that side: 3, or 0 to see that the demo can fail
    #[arg(long, value_name = "MODE", default_value = "3", value_parser = ["0", "3"])]
    exact_mode: String,
    /// Real engines instead, as installed in FOLDER
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, default_missing_value = "target/real", conflicts_with = "engines")]
    real: Option<PathBuf>,
    /// Go on serving after the summary, until Ctrl-C
    #[arg(long, conflicts_with = "once")]
    stay: bool,
}

/// Runs the show until it is over or Ctrl-C.
pub fn run(args: &DemoArgs) -> Result<(), String> {
    let pool = pool(args)?;
    let script = script(args);
    let mode = if args.exact_mode == "0" { 0 } else { 3 };
    let gateway = Gateway::start(&*pool, Wanted { port: args.port, mode })?;
    let mut show = Show::new(pool, gateway, args.plain || args.once, script.requests());
    if mode == 0 {
        show.heads[1] = "IN TURN TOO";
    }
    let played = play(&mut show, &script);
    let told = match &played {
        Ok(outcome) => summary(&show, outcome, args.stay),
        Err(_) => Vec::new(),
    };
    show.close(&told)?;
    if args.stay && played.is_ok() {
        show.wait_for_end();
    }
    show.end()?;
    match played {
        Ok(outcome) if outcome.failures.is_empty() => Ok(()),
        Ok(outcome) => Err(outcome.failures.join("; ")),
        Err(Halt::Interrupted) if args.once => Err("the demo was interrupted before its end".into()),
        Err(Halt::Interrupted) => Ok(()),
        Err(Halt::Fault(sentence) | Halt::NotRun(sentence)) => Err(sentence),
    }
}

fn pool(args: &DemoArgs) -> Result<Box<dyn Pool>, String> {
    let Some(folder) = &args.real else { return Ok(Box::new(Simulated::start(usize::from(args.engines))?)) };
    eprintln!("warmpath: two real vLLM engines are started, which takes minutes");
    Ok(Box::new(Real::start(folder)?))
}

fn script(args: &DemoArgs) -> Script {
    let conversations = if args.once || args.real.is_some() { 24 } else { 48 };
    let voices = if args.real.is_some() { 4 } else { 8 };
    Script { voices, conversations, turns: 5, reading: Duration::from_millis(120) }
}

/// The whole show, and what came of it.
fn play(show: &mut Show, script: &Script) -> Result<Outcome, Halt> {
    let facts = show.facts().clone();
    let (conversations, turns) = (script.conversations, script.turns);
    show.subtitle = format!(
        "The same {conversations} conversations of {turns} turns to both sides; {} engines, {} blocks each",
        facts.engines, facts.cache_blocks
    );
    show.announce(intro(show, script))?;
    show.compare(script)?;
    show.say(format!("All {} turns are answered on both sides.", script.requests()))?;
    let mut outcome = acts::run(show)?;
    if let Err(sentence) = summary::verdict(&show.board) {
        outcome.failures.insert(0, sentence);
    }
    Ok(outcome)
}

fn intro(show: &Show, script: &Script) -> String {
    let facts = show.facts();
    let pools = match facts.is_shared {
        false => format!("two pools of {} {} engines", facts.engines, facts.kind),
        true => format!("{} {} engines, in turn first and then by blocks", facts.engines, facts.kind),
    };
    format!(
        "The same {} conversations of {} turns go to {pools}, through one gateway with {}. All share {} tokens of \
         instructions, those of a tenant {} more; an engine caches {} tokens.",
        script.conversations,
        script.turns,
        show.gateway().ground(),
        conversation::SHARED,
        conversation::TENANT,
        facts.cache_blocks * facts.block_size,
    )
}

/// Panel and table, what did not go as told, and what to try next.
fn summary(show: &Show, outcome: &Outcome, stays: bool) -> Vec<String> {
    let mut lines = vec![String::new()];
    lines.extend(show.panel());
    lines.push(String::new());
    lines.extend(summary::table(&show.board, show.heads));
    lines.push(String::new());
    lines.extend(outcome.failures.iter().map(|failure| format!("FAILED: {failure}")));
    lines.extend(outcome.not_run.iter().map(|reason| format!("not_run: {reason}")));
    lines.extend(if stays { staying(show) } else { next() });
    lines
}

fn next() -> Vec<String> {
    [
        "What to try next:",
        "  warmpath demo --stay          it goes on serving: look into it by `ctl`",
        "  warmpath demo --exact-mode 0  without exact routing, where it must fail",
        "  warmpath doctor --help        whether exact routing fits your engines",
    ]
    .map(String::from)
    .into()
}

fn staying(show: &Show) -> Vec<String> {
    let (socket, address) = (show.gateway().socket(), show.gateway().address(Side::Exact));
    let socket = socket.display();
    vec![
        format!("It serves on at http://{address} until Ctrl-C. Look into it:"),
        format!("  warmpath ctl --socket {socket} explain --wide"),
        format!("  warmpath ctl --socket {socket} kv"),
        format!(
            "  curl -N http://{address}/v1/chat/completions -H 'Content-Type: application/json' -d \
             '{{\"model\":\"{}\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'",
            show.facts().model
        ),
    ]
}
