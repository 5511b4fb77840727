//! States over rows of answers, findings over numbers, legs over evidence.

use super::*;
use crate::shared::Fence;

fn after(answers: impl IntoIterator<Item = bool>) -> Trust {
    answers.into_iter().fold(Trust::default(), Trust::after)
}

#[test]
fn nobody_is_demoted_by_silence_nor_by_few_answers() {
    assert_eq!(Trust::default().state(), State::Unknown);
    assert_eq!(after([false; 1]).state(), State::Doubted);
    assert_eq!(after([false; 19]).state(), State::Doubted);
    assert_eq!(after([false; 20]).state(), State::LoadOnly);
}

#[test]
fn half_of_the_answers_are_enough_and_less_are_not() {
    let half = (0..20).map(|at| at % 2 == 0);
    assert_eq!(after(half.clone()).state(), State::Trusted);
    let less = (0..20).map(|at| at < 9);
    assert_eq!((after(less.clone()).state(), after(less).judged()), (State::LoadOnly, (20, 9)));
    // Only the last 32 count: a good past is forgotten.
    let long = std::iter::repeat_n(true, 500).chain(std::iter::repeat_n(false, 17));
    assert_eq!((after(long.clone()).state(), after(long).judged()), (State::LoadOnly, (32, 15)));
}

#[test]
fn three_in_a_row_that_agree_let_it_in_and_one_that_does_not_begins_anew() {
    let demoted = after([false; 20]);
    let row = |answers: &[bool]| answers.iter().copied().fold(demoted, Trust::after);
    assert_eq!(row(&[true, true]).state(), State::LoadOnly);
    assert_eq!(row(&[true, true, false, true, true]).state(), State::LoadOnly);
    let again = row(&[true, true, true]);
    assert_eq!((again.state(), again.judged()), (State::Trusted, (3, 3)));
    assert_eq!([false; 4].into_iter().fold(again, Trust::after).state(), State::Doubted);
    assert_eq!([false; 17].into_iter().fold(again, Trust::after).state(), State::LoadOnly);
}

#[test]
fn a_word_holds_all_of_it() {
    let mut trust = Trust::default();
    assert_eq!(trust.word(), 0);
    for at in 0..200_u32 {
        trust = trust.after(at.is_multiple_of(3) || at > 120);
        assert_eq!(Trust::of(trust.word()), trust);
    }
}

/// Of ranks that hold 48 to 144 tokens one answered, nobody knows which.
#[test]
fn where_the_rank_is_unknown_any_rank_explains_an_answer() {
    let of = |least: u32, cached| {
        let spread = 144 - least;
        let ranks = Answer { predicted: 144, reach: 144, promised: 144, spread, ..Answer::default() };
        judge(&Answer { cached, unit: 16, is_all_known: true, ..ranks })
    };
    assert_eq!([144, 150, 48, 60].map(|cached| of(48, cached)), [Some(Finding::Agrees); 4]);
    assert_eq!([64, 128].map(|cached| of(48, cached)), [None; 2], "between what two of them hold");
    assert_eq!((of(48, 32), of(48, 160)), (Some(Finding::Less), Some(Finding::More)));
    assert_eq!(
        (of(0, 0), of(0, 144)),
        (None, Some(Finding::Agrees)),
        "one that holds nothing may have answered"
    );
}

#[test]
fn only_what_was_on_its_way_is_asked_after() {
    let plain =
        Answer { promised: 160, reach: 48, predicted: 48, unit: 16, is_all_known: true, ..Answer::default() };
    let brought = |cached| is_brought(&Answer { cached, ..plain });
    assert_eq!(
        [48, 63, 64, 144, 145, 160, 175, 176].map(brought),
        [false, false, false, false, true, true, true, false]
    );
    assert!(!is_brought(&Answer { cached: 160, is_all_known: false, ..plain }));
    assert!(!is_brought(&Answer { cached: 160, counted: Some((170, 171)), ..plain }));
}

#[test]
fn an_answer_is_judged_to_a_block() {
    let plain = Answer { unit: 16, is_all_known: true, ..Answer::default() };
    let found = |predicted, cached| {
        judge(&Answer { predicted, reach: predicted, promised: predicted, cached, ..plain })
    };
    assert_eq!(found(0, 0), None, "nothing was predicted, nothing was there");
    assert_eq!(found(0, 15), None);
    assert_eq!(found(144, 144), Some(Finding::Agrees));
    // A part of a block: TensorRT-LLM has them, and prompts are looked up in units.
    assert_eq!((found(144, 159), found(144, 129)), (Some(Finding::Agrees), Some(Finding::Agrees)));
    assert_eq!((found(144, 128), found(144, 0)), (Some(Finding::Less), Some(Finding::Less)));
    assert_eq!((found(144, 160), found(0, 16)), (Some(Finding::More), Some(Finding::More)));
}

#[test]
fn what_lies_further_away_or_is_on_its_way_or_was_never_told_is_no_contradiction() {
    let plain = Answer { unit: 16, cached: 64, is_all_known: true, ..Answer::default() };
    assert_eq!(judge(&Answer { reach: 64, promised: 64, ..plain }), Some(Finding::Agrees));
    assert_eq!(judge(&Answer { promised: 64, ..plain }), None);
    assert_eq!(judge(&Answer { is_all_known: false, ..plain }), None);
    assert_eq!(judge(&plain), Some(Finding::More));
}

#[test]
fn another_number_of_tokens_is_told_apart_unless_the_prediction_holds() {
    let plain = Answer { unit: 16, counted: Some((100, 107)), is_all_known: true, ..Answer::default() };
    assert_eq!(judge(&plain), Some(Finding::Recount));
    assert_eq!(judge(&Answer { predicted: 32, reach: 32, cached: 32, ..plain }), Some(Finding::Agrees));
    assert_eq!(judge(&Answer { predicted: 32, reach: 32, cached: 0, ..plain }), Some(Finding::Recount));
    assert_eq!(judge(&Answer { cached: 64, ..plain }), Some(Finding::Recount));
    assert_eq!(judge(&Answer { counted: Some((7, 7)), ..plain }), None);
}

/// Symptoms of so many findings of some classes.
fn symptoms(all: &[(Given, Apart, Finding, u32)]) -> Symptoms {
    let mut symptoms = Symptoms::default();
    for (given, apart, finding, count) in all {
        let class = Class { given: *given, apart: *apart };
        symptoms.0[class.place()][*finding as usize] += count;
    }
    symptoms
}

fn named(symptoms: &Symptoms, names: &Names, fence: Option<Fence>) -> Vec<&'static str> {
    legs(symptoms, names, fence).iter().map(Leg::word).collect()
}

#[test]
fn classes_have_places_of_their_own() {
    assert!(Class::all().map(Class::place).eq(0..Class::COUNT));
}

#[test]
fn names_in_events_tell_seed_hash_salt_and_adapter() {
    let (same, other) = (Seen { same: 5, other: 0 }, Seen { same: 0, other: 3 });
    let more = symptoms(&[(Given::Ids, Apart::Plain, Finding::More, 25)]);
    let names = |plain, salted, adapter, tried| Names { plain, salted, adapter, tried, ..Names::default() };
    let none = Seen::default();
    for (given, expected) in [
        (names(other, none, none, Tried::Seed("0")), &["seed"][..]),
        (names(other, none, none, Tried::Algorithm("sha256")), &["algorithm"]),
        (names(other, none, none, Tried::Nothing), &["seed", "algorithm"]),
        (names(same, other, none, Tried::Nothing), &["salt"]),
        (names(same, same, other, Tried::Nothing), &["lora"]),
        (names(same, other, other, Tried::Nothing), &["salt", "lora"]),
        (Names { wrong_size: true, ..Names::default() }, &["block_size"]),
    ] {
        assert_eq!(named(&more, &given, None), expected, "{given:?}");
    }
    let plain = names(same, none, none, Tried::Nothing);
    assert_eq!(named(&more, &plain, Some(Fence::Algorithm)), ["algorithm"]);
    assert_eq!(named(&more, &plain, Some(Fence::BlockSize)), ["block_size"]);
    assert_eq!(named(&more, &plain, Some(Fence::Ownership)), ["lost_events", "second_reader"]);
}

#[test]
fn text_chats_salts_and_adapters_are_told_apart_by_who_agrees() {
    use Apart::{Adapter, Plain, Salt};
    use Finding::{Agrees, Less, More, Recount};
    use Given::{Chat, Ids, Text};
    let proven = Names { plain: Seen { same: 9, other: 0 }, ..Names::default() };
    for (all, expected) in [
        (&[(Text, Plain, Recount, 9)][..], &["tokenizer"][..]),
        (&[(Chat, Plain, Recount, 9)], &["tokenizer", "template"]),
        (&[(Chat, Plain, Recount, 9), (Text, Plain, Agrees, 1)], &["template"]),
        (&[(Chat, Plain, More, 9), (Text, Plain, Agrees, 1)], &["template"]),
        (&[(Chat, Plain, Recount, 3), (Chat, Plain, Agrees, 9)], &[]),
        (&[(Ids, Salt, Less, 9), (Ids, Plain, Agrees, 1)], &["salt"]),
        (&[(Ids, Adapter, More, 9), (Ids, Plain, Agrees, 1)], &["lora"]),
        (&[(Ids, Plain, Less, 9)], &["lost_events"]),
        (&[(Ids, Plain, Agrees, 9)], &[]),
        (&[], &[]),
    ] {
        assert_eq!(named(&symptoms(all), &proven, None), expected, "{all:?}");
    }
    let drained = Names { is_drained: true, ..proven };
    let less = symptoms(&[(Ids, Plain, Less, 9)]);
    assert_eq!(named(&less, &drained, None), ["lost_events", "second_reader"]);
    // Nothing shows that blocks have the right names: then more than predicted may be any of it.
    let text = symptoms(&[(Text, Plain, More, 9)]);
    assert_eq!(named(&text, &Names::default(), None), ["lost_events"]);
}
