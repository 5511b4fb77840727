//! Challenges: what they are made of, and what is heard of them.

use super::*;

fn contract(block: u64) -> Contract {
    let size = BlockSize::new(block).unwrap();
    Engine::Sglang.contract(&Naming::plain(Algo::Sha256Sglang, size)).unwrap()
}

/// A byte a token.
fn bytes(body: &[u8]) -> Option<Vec<u32>> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(body["prompt"].as_str()?.bytes().map(u32::from).collect())
}

fn challenge(block: u64, nonce: &str) -> Challenge {
    Challenge::compose(Api::Completions, "m", nonce, &contract(block), bytes).unwrap()
}

/// All that an engine tells of a prompt.
fn echo(challenge: &Challenge, rank: u8, block: usize) -> Vec<Heard> {
    let listening = challenge.listens_for();
    let prompt = bytes(&challenge.body).unwrap();
    let chunks = prompt.chunks_exact(block);
    let heard = |(chunk, key): (&[u32], &u64)| Heard {
        rank,
        key: Some(*key),
        tokens: chunk.to_vec(),
        is_plain: true,
    };
    chunks.zip(&listening.keys).map(heard).collect()
}

#[test]
fn two_blocks_under_their_names_are_an_echo_and_one_is_not() {
    for block in [1, 16, 64, 128] {
        let asked = challenge(block, "0123456789abcdef0123456789abcdef");
        let heard = echo(&asked, 3, block as usize);
        assert!(heard.len() >= 2, "{block}");
        assert_eq!(asked.judge(&heard), Some(Echo::Named(3)), "{block}");
        assert_eq!(asked.judge(&heard[..1]), None, "{block}");
        assert_eq!(asked.judge(&[]), None);
    }
}

#[test]
fn no_two_nonces_have_a_block_in_common_that_proves() {
    let keys = |nonce: &str| {
        let asked = challenge(1, nonce);
        let keys = asked.listens_for().keys;
        keys[keys.len() - 3..].to_vec()
    };
    let (one, other) = (keys("00000000000000000000000000000001"), keys("00000000000000000000000000000002"));
    assert!(one.iter().all(|key| !other.contains(key)));
}

#[test]
fn one_token_flipped_fails_wherever_it_is() {
    let asked = challenge(16, "0123456789abcdef0123456789abcdef");
    for block in 0..2 {
        for token in 0..16 {
            let mut heard = echo(&asked, 0, 16);
            heard[block].tokens[token] ^= 1;
            // Its name is another too, unless it is computed from what was expected.
            assert_eq!(asked.judge(&heard), Some(Echo::OtherTokens), "block {block}, token {token}");
            heard[block].key = Some(1);
            assert_eq!(asked.judge(&heard), Some(Echo::OtherTokens), "block {block}, token {token}");
        }
    }
}

#[test]
fn other_names_other_ranks_and_more_than_tokens_are_told_apart() {
    let asked = challenge(16, "0123456789abcdef0123456789abcdef");
    let changed = |change: fn(&mut Heard)| {
        let mut heard = echo(&asked, 0, 16);
        change(&mut heard[1]);
        asked.judge(&heard)
    };
    assert_eq!(changed(|heard| heard.key = Some(1)), Some(Echo::OtherNames));
    assert_eq!(changed(|heard| heard.key = None), Some(Echo::OtherNames));
    assert_eq!(changed(|heard| heard.is_plain = false), Some(Echo::OtherNames));
    assert_eq!(changed(|heard| heard.rank = 1), Some(Echo::SeveralRanks));
}

#[test]
fn a_first_block_that_is_much_like_it_is_listened_to() {
    let listening = challenge(16, "0123456789abcdef0123456789abcdef").listens_for();
    let mut tokens = listening.first.clone();
    tokens[3] ^= 1;
    assert!(listening.is_like(&tokens) && !listening.is_like(&[7; 16]) && !listening.is_like(&[]));
}

#[test]
fn what_can_not_be_made_into_tokens_is_no_challenge() {
    let none = Challenge::compose(Api::Chat, "m", "0", &contract(16), |_| None);
    assert_eq!(none, None);
    let endless = Challenge::compose(Api::Chat, "m", "0", &contract(16), |_| Some(vec![1]));
    assert_eq!(endless, None, "a tokenizer that makes nothing of text ends the attempt");
}
