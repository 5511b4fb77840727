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
mod screen;
mod show;
mod simulated;
mod summary;
mod talk;

use clap::Args;
use gateway::{Gateway, Wanted};
use pool::Pool;
use show::{Halt, Show};
use simulated::Simulated;
use std::time::Duration;
use talk::Script;

/// See the gateway at work: the same conversations in turn and by blocks, then what befalls engines.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  warmpath demo                  side by side, live; under a minute
  warmpath demo --stay           goes on serving until Ctrl-C, to look into it with `warmpath ctl`
  warmpath demo --plain | less   a line for each decision, with its reason
  warmpath demo --once           short and plain, for scripts: exit code 0 if exact routing computed far fewer prompt
                                 tokens than round robin, and each act went as told
  warmpath demo --exact-mode 0   the same without exact routing: it fails, as it must")]
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
    /// Go on serving after the summary, until Ctrl-C
    #[arg(long, conflicts_with = "once")]
    stay: bool,
}

/// Runs the show until it is over or Ctrl-C.
pub fn run(args: &DemoArgs) -> Result<(), String> {
    let pool: Box<dyn Pool> = Box::new(Simulated::start(usize::from(args.engines))?);
    let script = script(args);
    let mode = if args.exact_mode == "0" { 0 } else { 3 };
    let gateway = Gateway::start(&*pool, Wanted { port: args.port, mode })?;
    let mut show = Show::new(pool, gateway, args.plain || args.once, script.requests());
    let played = play(&mut show, &script);
    let told = match &played {
        Ok(failures) => end_of(&show, failures),
        Err(_) => Vec::new(),
    };
    show.close(&told)?;
    if args.stay && played.is_ok() {
        show.wait_for_end();
    }
    show.end()?;
    match played {
        Ok(failures) if failures.is_empty() => Ok(()),
        Ok(failures) => Err(failures.join("; ")),
        Err(Halt::Interrupted) if args.once => Err("the demo was interrupted before its end".into()),
        Err(Halt::Interrupted) => Ok(()),
        Err(Halt::Fault(sentence) | Halt::NotRun(sentence)) => Err(sentence),
    }
}

fn script(args: &DemoArgs) -> Script {
    let conversations = if args.once { 24 } else { 64 };
    Script { voices: 8, conversations, turns: 5, reading: Duration::from_millis(120) }
}

/// The whole show; what did not go as told.
fn play(show: &mut Show, script: &Script) -> Result<Vec<String>, Halt> {
    intro(show, script)?;
    show.compare(script)?;
    show.say(format!("All {} turns are answered on both sides.", script.requests()))?;
    let mut failures: Vec<String> = summary::verdict(&show.board).err().into_iter().collect();
    failures.extend(acts::run(show)?);
    Ok(failures)
}

fn intro(show: &mut Show, script: &Script) -> Result<(), Halt> {
    let facts = show.facts().clone();
    show.announce(format!(
        "The same {} conversations of {} turns go to two pools of {} {} engines, through one gateway ({}).",
        script.conversations,
        script.turns,
        facts.engines,
        facts.kind,
        show.gateway().ground()
    ))?;
    Ok(())
}

/// The summary, and what to try next.
fn end_of(show: &Show, failures: &[String]) -> Vec<String> {
    let mut lines = vec![String::new()];
    lines.extend(summary::table(&show.board));
    lines.push(String::new());
    lines.extend(failures.iter().map(|failure| format!("FAILED: {failure}")));
    lines
}
