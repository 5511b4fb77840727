//! All interleavings of a writer and a reader of one set.

use super::*;
use loom::sync::Arc;
use loom::thread;

/// A writer replaces an entry while another thread reads: value and key belong together.
#[test]
fn timed_entries_are_read_whole() {
    loom::model(|| {
        let map = Arc::new(TimedMap::new(0));
        map.put(1, 100, 0, |_| 1);
        let writer = {
            let map = map.clone();
            thread::spawn(move || map.put(2, 100, 0, |_| 2))
        };
        assert!(map.peek(2, 0).is_none_or(|value| value == 2));
        assert!(map.peek(1, 0).is_none_or(|value| value == 1));
        assert!(writer.join().unwrap());
        assert_eq!((map.find(1, 100, 0), map.find(2, 100, 0)), (None, Some(2)));
    });
}
