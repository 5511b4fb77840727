//! A rank's numbered batches: sent to whoever listens now, and kept for replay. Must never wait for a
//! listener: what finds its queue full is dropped, as a PUB socket does at its high-water mark.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::mpsc;

/// Batches that wait for one listener (vLLM: `hwm`).
pub const QUEUE: usize = 100_000;

/// A batch as sent.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Its number, from 0 in each process.
    pub number: u64,
    /// Its events.
    pub payload: Arc<[u8]>,
}

/// What becomes of a batch on its way to the listeners. Replay has it in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Sent.
    Sent,
    /// Sent twice.
    Doubled,
    /// Not sent.
    Lost,
}

/// The batches of one rank.
#[derive(Debug)]
pub struct Stream {
    next: u64,
    kept: VecDeque<Batch>,
    bound: usize,
    listeners: Vec<mpsc::Sender<Batch>>,
}

impl Stream {
    /// Keeps the last `bound` batches.
    pub fn new(bound: usize) -> Self {
        Stream { next: 0, kept: VecDeque::new(), bound, listeners: Vec::new() }
    }

    /// Numbers a batch, keeps it and sends it.
    pub fn publish(&mut self, payload: Vec<u8>, fate: Fate) {
        let batch = Batch { number: self.next, payload: payload.into() };
        self.next += 1;
        let times = match fate {
            Fate::Sent => 1,
            Fate::Doubled => 2,
            Fate::Lost => 0,
        };
        self.listeners.retain(|listener| !listener.is_closed());
        for listener in &self.listeners {
            (0..times).for_each(|_| _ = listener.try_send(batch.clone()));
        }
        self.kept.push_back(batch);
        if self.kept.len() > self.bound {
            self.kept.pop_front();
        }
    }

    /// A listener's queue, from now on.
    pub fn listen(&mut self) -> mpsc::Receiver<Batch> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        self.listeners.push(sender);
        receiver
    }

    /// The kept batches from a number on.
    pub fn since(&self, number: u64) -> Vec<Batch> {
        self.kept.iter().filter(|batch| batch.number >= number).cloned().collect()
    }

    /// The number of the next batch.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// A new process.
    pub fn restart(&mut self) {
        self.next = 0;
        self.kept.clear();
        self.listeners.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_over_lost_batches_and_replay_has_them() {
        let mut stream = Stream::new(2);
        let mut live = stream.listen();
        for fate in [Fate::Sent, Fate::Lost, Fate::Doubled] {
            stream.publish(vec![7], fate);
        }
        let heard: Vec<u64> = std::iter::from_fn(|| live.try_recv().ok()).map(|batch| batch.number).collect();
        assert_eq!(heard, [0, 2, 2]);
        let kept = |from| stream.since(from).iter().map(|batch| batch.number).collect::<Vec<_>>();
        assert_eq!((kept(0), kept(2), kept(3)), (vec![1, 2], vec![2], vec![]));
    }
}
