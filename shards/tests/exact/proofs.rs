//! What answers prove: to the event core, of blocks that no event told of; of their endpoint, to trust, and what trust
//! then does to decisions.

use crate::usage::{by_length, whole};
use crate::world::{Pool, World};
use crate::{ask, prompt};
use serde_json::json;
use warmpath_core::SECOND;
use warmpath_core::decide::exact::Miss;
use warmpath_core::shared::{Shown, Tier};
use warmpath_core::trust::{Class, Finding, State};

/// One taken from the mailbox: source, what is shown, keys.
fn told(world: &World) -> Option<(u32, Shown, Vec<u64>)> {
    let mut found = None;
    world.proofs.take(|told| found = Some((told.source, told.shown, told.keys.to_vec())));
    found
}

fn world(cached: u32) -> World {
    World::new(Pool::of(2).saying(by_length(&whole(cached))))
}

/// `whole` answers to 192 tokens.
fn twelve_blocks() -> crate::actors::Asked {
    ask(&prompt(1, 12))
}

#[test]
fn blocks_that_were_found_and_not_known_are_told() {
    let mut world = world(144);
    let keys = world.keys_of(&prompt(1, 12));
    world.ask(twelve_blocks());
    let source = world.source(0).number();
    assert_eq!(told(&world), Some((source, Shown::Held(0), keys[..9].to_vec())));
    assert_eq!(told(&world), None);
    // Some of it is known meanwhile.
    world.hold(0, 0, Tier::Gpu, &prompt(1, 4));
    world.source(0).set_blocks(0, 4, false);
    world.ask(twelve_blocks());
    assert_eq!(told(&world), Some((source, Shown::Held(4), keys[4..9].to_vec())));
    // All of it.
    world.hold(0, 0, Tier::Gpu, &prompt(1, 9));
    world.source(0).set_blocks(0, 9, false);
    world.ask(twelve_blocks());
    assert_eq!(told(&world), None);
}

#[test]
fn blocks_that_had_to_be_computed_are_told_too() {
    let mut world = world(48);
    let keys = world.keys_of(&prompt(1, 12));
    world.hold(1, 0, Tier::Gpu, &prompt(1, 9));
    world.source(1).set_blocks(0, 9, false);
    world.ask(twelve_blocks());
    assert_eq!(told(&world), Some((world.source(1).number(), Shown::Computed, keys[3..9].to_vec())));
}

#[test]
fn long_prompts_come_in_parts_and_what_proves_nothing_is_not_told() {
    let body = json!({"choices": [], "usage": {"prompt_tokens": 2000, "prompt_tokens_details": {"cached_tokens": 1984}}});
    let mut world = World::new(Pool::of(1).saying(by_length(&body.to_string())));
    let tokens: Vec<u32> = (0..2000).collect();
    let keys = world.keys_of(&tokens);
    world.ask(ask(&tokens));
    let parts: Vec<_> = std::iter::from_fn(|| told(&world)).collect();
    assert_eq!(parts.iter().map(|part| part.1).collect::<Vec<_>>(), [0, 60, 120].map(Shown::Held));
    assert_eq!(parts.into_iter().flat_map(|part| part.2).collect::<Vec<_>>(), keys[..124]);
    // Another number of tokens: its prompt is not the one that has these keys.
    world.ask(ask(&tokens[..1999]));
    assert_eq!(told(&world), None);
    // All that it holds is known, and nothing is on its way any more.
    world.source(0).set_blocks(0, 1, true);
    world.pass(SECOND);
    world.ask(ask(&tokens));
    assert_eq!(told(&world), None);
}

/// Where an answer does not tell, the events of the request are asked: of the last two blocks that counted as held, and
/// the first that did not.
#[test]
fn what_an_answer_does_not_tell_is_asked_of_the_events() {
    let mut world = World::new(Pool::of(2).saying(by_length("{}")));
    let keys = world.keys_of(&prompt(1, 12));
    world.hold(1, 0, Tier::Gpu, &prompt(1, 9));
    world.ask(twelve_blocks());
    let (source, shown, edge) = told(&world).unwrap();
    assert!(matches!(shown, Shown::Untold { .. }) && source == world.source(1).number());
    assert_eq!(edge, keys[7..10]);
    let untold = world.trust(1).untold();
    assert_eq!((untold.requests[0], untold.tokens, untold.units), (1, 192, 16), "for the engine's counters");
    assert_eq!((untold.predicted, untold.reach, untold.unsure), (144, 144, 0));
    world.hold(1, 0, Tier::Gpu, &prompt(1, 12));
    world.ask(twelve_blocks());
    assert_eq!(told(&world).unwrap().2, keys[9..11], "the last full block is always computed");
    world.ask(ask(&prompt(2, 3)));
    assert_eq!(told(&world), None, "nothing was predicted");
}

/// A prompt that comes again before its events: what it finds was on its way, and must have come.
#[test]
fn what_others_bring_is_asked_of_the_events() {
    let mut world = World::new(Pool::of(1).saying(by_length(&whole(176))));
    let keys = world.keys_of(&prompt(1, 12));
    world.source(0).set_blocks(0, 0, true);
    world.ask(twelve_blocks());
    assert_eq!(world.receipts().pop().unwrap().exact.unwrap().finding, Some(Finding::More));
    assert_eq!(told(&world), None, "nothing was on its way");
    world.ask(twelve_blocks());
    assert_eq!(world.receipts().pop().unwrap().exact.unwrap().finding, None);
    let (_, shown, brought) = told(&world).unwrap();
    assert!(matches!(shown, Shown::Brought { class, .. } if class == Class::default()), "{shown:?}");
    assert_eq!(brought, keys[9..11]);
}

#[test]
fn answers_are_judged_and_receipts_say_how() {
    for (cached, found) in [(144, Finding::Agrees), (16, Finding::Less), (176, Finding::More)] {
        let mut world = world(cached);
        world.hold(1, 0, Tier::Gpu, &prompt(1, 9));
        world.ask(twelve_blocks());
        assert_eq!(world.receipts()[0].exact.unwrap().finding, Some(found));
        assert_eq!(world.trust(1).symptoms().count(|class| class == Class::default(), found), 1);
        assert_eq!(world.trust(0).state(), State::Unknown);
    }
    // Nothing told, nothing known: no word against it.
    let mut silent = World::new(Pool::of(2).saying(by_length("{}")));
    silent.hold(1, 0, Tier::Gpu, &prompt(1, 9));
    silent.ask(twelve_blocks());
    assert_eq!(
        (silent.receipts()[0].exact.unwrap().finding, silent.trust(1).state()),
        (None, State::Unknown)
    );
}

/// Where the last request went, by the receipt: scripted engines don't say who they are.
fn went_to(world: &mut World) -> Option<u8> {
    let receipt = world.receipts().pop()?;
    match receipt.endpoint?.ip() {
        std::net::IpAddr::V4(ip) => Some(ip.octets()[3] - 1),
        std::net::IpAddr::V6(_) => None,
    }
}

/// The engine says that it had to compute what its events told it holds.
#[test]
fn an_endpoint_whose_answers_contradict_takes_requests_by_load_alone() {
    let mut world = world(0);
    world.hold(1, 0, Tier::Gpu, &prompt(1, 9));
    // Each sixteenth hit is for a cold endpoint, which agrees that it held nothing.
    for round in 0..13 {
        world.ask(twelve_blocks());
        assert_eq!(went_to(&mut world), Some(1), "round {round}");
    }
    assert_eq!((world.trust(1).state(), world.trust(1).now().judged()), (State::Doubted, (13, 0)));
    (0..7).for_each(|_| world.trust(1).judged(Class::default(), Finding::Less));
    assert_eq!(world.trust(1).state(), State::LoadOnly);
    // One request each five seconds is routed there to see; the others go by turn, and say why.
    world.ask(twelve_blocks());
    assert_eq!(world.receipts().pop().unwrap().reason.unwrap().word(), "exact", "a probe");
    world.ask(twelve_blocks());
    assert_eq!(world.misses().pop(), Some(Miss::NoSignal), "the other is trusted, and holds nothing");
    (0..20).for_each(|_| world.trust(0).judged(Class::default(), Finding::Less));
    world.ask(twelve_blocks());
    assert_eq!(world.misses().pop(), Some(Miss::Untrusted));
    world.pass(5 * SECOND);
    world.ask(twelve_blocks());
    assert_eq!(world.receipts().pop().unwrap().reason.unwrap().word(), "exact");
}

#[test]
fn an_endpoint_whose_answers_agree_again_is_let_in() {
    let mut world = world(144);
    world.hold(1, 0, Tier::Gpu, &prompt(1, 9));
    (0..25).for_each(|_| world.trust(1).judged(Class::default(), Finding::Less));
    for _ in 0..3 {
        assert_eq!(world.trust(1).state(), State::LoadOnly);
        world.ask(twelve_blocks());
        assert_eq!(world.receipts().pop().unwrap().reason.unwrap().word(), "exact", "a probe");
        world.pass(5 * SECOND);
    }
    assert_eq!(world.trust(1).state(), State::Trusted);
}
