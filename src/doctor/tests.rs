//! Arguments of `doctor` and what becomes of them.

use super::*;
use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    doctor: DoctorArgs,
}

fn wanted(words: &str, seed: Option<&str>) -> Result<Vec<Wanted>, String> {
    let cli = Cli::try_parse_from(std::iter::once("doctor").chain(words.split(' ')));
    let environment = Environment { none_hash_seed: seed.map(Into::into), ..Environment::default() };
    all(&cli.map_err(|fault| fault.to_string())?.doctor, &environment)
}

#[test]
fn arguments_become_the_rule_that_they_describe() {
    let line = "--endpoint http://127.0.0.1:8000/ --kind sglang --model m --block-size 32 --ranks 2 --events tcp://*:6000 \
                --replay tcp://127.0.0.1:7000";
    let all = wanted(&line.split_whitespace().collect::<Vec<_>>().join(" "), None).unwrap();
    let exact = all[0].exact.as_ref().unwrap();
    assert_eq!((all[0].endpoint, all[0].model.as_str()), ("127.0.0.1:8000".parse().unwrap(), "m"));
    assert_eq!((exact.contract.block_size().tokens(), exact.ranks), (32, 2));
    assert_eq!((exact.ports.publish, exact.ports.replay, exact.ports.bind), (6000, 7000, true));
    let llama = wanted("--endpoint 127.0.0.1:1 --kind llamacpp", None).unwrap();
    assert!(llama[0].exact.is_none());
}

/// The rest of a rule is compared although the gateway would serve it without exact routing.
#[test]
fn a_missing_seed_is_a_finding_and_no_refusal() {
    let line = "--endpoint http://127.0.0.1:8000 --kind vllm --model m";
    let without = wanted(line, None).unwrap();
    assert!(without[0].lacking.as_ref().is_some_and(|why| why.contains("PYTHONHASHSEED")), "{without:?}");
    assert!(without[0].exact.is_some());
    assert_eq!(wanted(line, Some("0")).unwrap()[0].lacking, None);
    assert_eq!(wanted(&format!("{line} --algo tokens"), None).unwrap()[0].lacking, None);
}

#[test]
fn what_cannot_be_meant_is_refused_with_the_cure() {
    for (line, part) in [
        ("--model m", "--endpoint"),
        ("--endpoint https://127.0.0.1:1", "write it as http://HOST:PORT"),
        ("--endpoint http://127.0.0.1:1/v1", "a path"),
        ("--endpoint 127.0.0.1", "write it as http://HOST:PORT"),
        ("--endpoint 127.0.0.1:1 --kind ollama", "allowed are vllm, sglang, trtllm, llamacpp"),
        ("--endpoint 127.0.0.1:1 --algo md5", "allowed are sha256"),
        ("--endpoint 127.0.0.1:1 --events 127.0.0.1:1", "tcp://HOST:PORT"),
        ("--endpoint 127.0.0.1:1 --events tcp://127.0.0.2:1", "where the gateway dials this engine's events"),
        ("--endpoint 127.0.0.1:1 --block-size 0", "kvBlockSize"),
        ("--endpoint 127.0.0.1:1 --kind trtllm --events tcp://127.0.0.1:1", "kvZmqPort"),
        ("--endpoint 127.0.0.1:1 --rule r.json", "cannot be used with"),
        ("--rule /nowhere/rules.json", "can't be read"),
    ] {
        let fault = wanted(line, Some("0")).map(|_| ()).expect_err(line);
        assert!(fault.contains(part), "{line}: {fault}");
    }
}
