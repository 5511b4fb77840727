//! One thread, then several.

use super::*;
use crate::trust::{Apart, Given};
use std::sync::Arc;

fn told(source: u32, keys: &[u64]) -> Observation<'_> {
    Observation { source, rank: 7, sent: 1 << 40, shown: Shown::Held(u32::MAX), keys }
}

fn taken(mailbox: &Observations) -> Option<(u32, Shown, Vec<u64>)> {
    let mut found = None;
    mailbox.take(|told| found = Some((told.source, told.shown, told.keys.to_vec())));
    found
}

#[test]
fn what_is_put_is_taken_whole_and_in_order() {
    let mailbox = Observations::new(2);
    let long: Vec<u64> = (0..100).collect();
    let class = Class { given: Given::Chat, apart: Apart::Adapter };
    let shown = [Shown::Computed, Shown::Untold { service: u32::MAX, class }];
    for lap in 0..5 {
        assert!(mailbox.put(&told(lap, &[1, 2, u64::MAX])));
        assert!(mailbox.put(&Observation { shown: shown[lap as usize % 2], ..told(u32::MAX, &long) }));
        assert!(!mailbox.put(&told(9, &[1])), "it is full");
        mailbox.take(|first| assert_eq!(first, &told(lap, &[1, 2, u64::MAX])));
        assert_eq!(taken(&mailbox), Some((u32::MAX, shown[lap as usize % 2], long[..KEYS_MAX].to_vec())));
        assert_eq!(taken(&mailbox), None);
    }
    assert_eq!(mailbox.dropped(), 5);
}

/// Four writers, one reader: nothing is torn, and what is neither taken nor dropped is nowhere.
#[test]
fn threads_tear_nothing() {
    let mailbox = Arc::new(Observations::new(8));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let mailbox = mailbox.clone();
            std::thread::spawn(move || {
                for number in 0..5_000_u64 {
                    let keys = vec![number; 1 + number as usize % KEYS_MAX];
                    mailbox.put(&Observation { sent: number, ..told(writer, &keys) });
                }
            })
        })
        .collect();
    let (mut count, mut last) = (0, [None; 4]);
    loop {
        let over = writers.iter().all(|writer| writer.is_finished());
        let took = mailbox.take(|told| {
            let number = told.sent;
            assert_eq!(told.keys, vec![number; 1 + number as usize % KEYS_MAX]);
            let before = last[told.source as usize].replace(number);
            assert!(before < Some(number), "each writer's own order");
            count += 1;
        });
        if !took && over {
            break;
        }
    }
    assert_eq!(count + mailbox.dropped(), 20_000);
}
