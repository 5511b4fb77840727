//! All interleavings of two shards and the event core.

use super::*;
use loom::sync::Arc;

#[test]
fn two_shards_and_the_event_core() {
    loom::model(|| {
        let mailbox = Arc::new(Observations::new(2));
        let writers: Vec<_> = (1..3_u64)
            .map(|own| {
                let mailbox = mailbox.clone();
                loom::thread::spawn(move || {
                    let keys = [own, own];
                    let told = Observation {
                        source: own as u32,
                        rank: 0,
                        sent: own,
                        shown: Shown::Held(0),
                        keys: &keys,
                    };
                    assert!(mailbox.put(&told));
                })
            })
            .collect();
        let mut seen = 0;
        let mut look = || {
            while mailbox.take(|told| {
                assert_eq!((told.sent, told.keys), (u64::from(told.source), &[told.sent; 2][..]));
                seen += 1;
            }) {}
        };
        look();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        look();
        assert_eq!(seen, 2);
    });
}
