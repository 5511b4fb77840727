//! All interleavings of a writer and a reader of one set.

use super::*;
use loom::sync::Arc;
use loom::thread;

/// Two writers replace each other in one entry while a third reads: value and key belong together.
#[test]
fn timed_entries_are_read_whole() {
    loom::model(|| {
        let map = Arc::new(TimedMap::new(0));
        map.put(1, 100, 0, |_| 1);
        let writer = {
            let map = map.clone();
            thread::spawn(move || {
                map.remove(1, 1);
                map.put(2, 100, 0, |_| 2);
            })
        };
        for name in [1, 2] {
            assert!(map.find(name, 100, 0).is_none_or(|value| value == name));
        }
        writer.join().unwrap();
        assert_eq!((map.find(1, 100, 0), map.find(2, 100, 0)), (None, Some(2)));
    });
}
