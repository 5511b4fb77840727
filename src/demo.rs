//! `warmpath demo`: simulated engines, a gateway and clients in one process, and a live table of who served
//! what and why. Owns the order of the show; must never print a figure that no receipt, report or engine
//! gave.

mod board;
mod scene;
mod screen;
mod talk;
mod tokens;
mod warmth;

use board::Board;
use clap::Args;
use scene::Scene;
use screen::Screen;
use std::time::Duration;
use talk::Talk;

/// Time between two looks at the gateway.
const EACH: Duration = Duration::from_millis(200);
/// Without `--once`, one engine rests for the middle third of every so many requests.
const CYCLE: u64 = 90;

/// See the gateway at work: simulated engines, clients that chat through it, and a live table.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  warmpath demo                  until Ctrl-C; chat along with the curl line it prints
  warmpath demo --engines 5      more engines
  warmpath demo --once           60 requests, the table once; exit code 0 if all were answered, some of
                                 them by an engine that had their prompt cached, and as predicted

Token-id prompts of model small go to the engine that holds most of their blocks; WHY says exact, and PREDICTED
and CACHED how many tokens the gateway expected there and the engine found. One engine stops taking connections
for a while, so that failover can be seen.")]
pub struct DemoArgs {
    /// Send --requests requests, print the table once and end: 0 if all were answered and warm as predicted, else 1
    #[arg(long)]
    once: bool,
    /// Simulated engines
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
    engines: u16,
    /// Requests of --once
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(20..=10_000))]
    requests: u64,
    /// Port of the gateway [default: a free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
}

/// Runs the show until it is over or Ctrl-C.
pub fn run(args: &DemoArgs) -> Result<(), String> {
    let mut scene = Scene::start(usize::from(args.engines), args.port)?;
    let mut screen = Screen::new(scene.intro(), args.once);
    let mut board = Board::new(scene.engines());
    let mut talk = Talk::start(scene.address(), args.once.then_some(args.requests), scene.caught());
    let cycle = if args.once { args.requests } else { CYCLE };
    while talk.goes_on(EACH) && !scene.is_over() {
        show(&mut scene, &mut board, &mut screen, cycle)?;
    }
    let interrupted = scene.is_over();
    talk.stop();
    if !interrupted {
        show(&mut scene, &mut board, &mut screen, cycle)?;
    }
    screen.end(&board)?;
    scene.end()?;
    match args.once {
        true if interrupted => Err("the demo was interrupted before all requests were answered".into()),
        true => talk.verdict(args.requests).and_then(|()| board.verdict()),
        false => Ok(()),
    }
}

/// One look: what is new goes to the board, the board to the screen, and an engine rests or comes back.
fn show(scene: &mut Scene, board: &mut Board, screen: &mut Screen, cycle: u64) -> Result<(), String> {
    board.take(&scene.reports(), scene.seen(), scene.clocks());
    let part = board.requests() % cycle;
    scene.rest_first((cycle / 3..cycle * 2 / 3).contains(&part));
    screen.show(board)
}
