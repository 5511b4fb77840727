//! warmpath's index, by walk and by jump.

use crate::engines::ENGINES;
use crate::index::{Index, Told};
use crate::stream::{Header, Request};
use warmpath_kvindex::{Holder, Plan, Reader, Writer, index};

/// The index and how it is asked.
pub struct Ours {
    writer: Writer,
    reader: Reader,
    holders: Vec<Holder>,
    jumps: bool,
    out: Vec<u32>,
}

/// A run of an event.
pub enum Event {
    /// Stored from a depth on.
    Stored(Holder, Vec<u64>, u32),
    /// Removed.
    Removed(Holder, Vec<u64>),
}

impl Ours {
    /// Sized for the most blocks of the stream, as an operator would from the engines' sizes.
    pub fn new(header: Header, jumps: bool) -> Result<Ours, String> {
        let plan = Plan::for_blocks(header.distinct_max, ENGINES, 1).map_err(|fault| fault.to_string())?;
        let (mut writer, readers) = index(plan, 0x5eed);
        let holders = (0..ENGINES as u64).filter_map(|name| writer.register(name)).collect();
        let reader = readers.reader().ok_or("no reader")?;
        Ok(Ours { out: vec![0; reader.bits()], writer, reader, holders, jumps })
    }
}

impl Index for Ours {
    type Event = Event;
    type Query = Vec<u64>;

    fn event(&self, engine: usize, told: Told<'_>) -> Event {
        match told {
            Told::Removed(keys) => Event::Removed(self.holders[engine], keys.to_vec()),
            Told::Stored { depth, keys, .. } => {
                Event::Stored(self.holders[engine], keys.to_vec(), depth as u32)
            }
        }
    }

    fn query(&self, request: &Request<'_>) -> Vec<u64> {
        request.keys.to_vec()
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Removed(holder, keys) => drop(self.writer.remove(holder, &keys)),
            Event::Stored(holder, keys, depth) => {
                let stored = self.writer.store(holder, &keys, depth);
                assert_eq!(stored.refused, 0, "the plan takes all blocks");
            }
        }
    }

    fn look(&mut self, keys: &Vec<u64>) -> u32 {
        let view = self.reader.view();
        match self.jumps {
            true => view.jump(keys, &view.live(), &mut self.out),
            false => view.walk(keys, &view.live(), &mut self.out),
        }
        self.out.iter().copied().max().unwrap_or(0)
    }
}
