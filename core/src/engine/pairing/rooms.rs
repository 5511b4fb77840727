//! The numbers by which two engines know a transfer: SGLang's rooms, the request ids of TensorRT-LLM, the transfer ids
//! of Mooncake. Owns their range and what makes them fit a request; drawing them at random is the caller's.

/// How many rooms a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// One for each sequence that prefill hands over; at least 1.
    pub rooms: u32,
    /// Whether each is named to the engine, else it counts up from the first.
    pub listed: bool,
}

impl Need {
    /// One room.
    pub const ONE: Need = Need { rooms: 1, listed: false };
}

/// The data-parallel rank that a room leads to: the room modulo the number of ranks (SGLang's
/// `follow_bootstrap_room`, the default of its prefill servers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The rank, below `of`.
    pub rank: u8,
    /// How many ranks the prefill engine has.
    pub of: u8,
}

/// Consecutive or evenly spaced rooms of one attempt. Random, so that no two live requests share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rooms {
    first: u64,
    step: u8,
    need: Need,
}

impl Rooms {
    /// One past the last room: engines hold them as signed 64-bit numbers.
    pub const END: u64 = 1 << 63;

    /// The first room. Below it are ids that TensorRT-LLM gives itself (`MIN_GLOBAL_ID`, 2^40; earlier 2^42).
    pub const BEGIN: u64 = 1 << 42;

    /// Rooms by 64 random bits. With `pin` the first leads to its rank, and so do all that are listed.
    pub fn draw(random: u64, need: Need, pin: Option<Pin>) -> Rooms {
        let (rank, of) = pin.map_or((0, 1), |pin| (u64::from(pin.rank), u64::from(pin.of.max(1))));
        let step = if need.listed { of } else { 1 };
        let span = step * u64::from(need.rooms) + of;
        let drawn = Rooms::BEGIN + random % (Rooms::END - Rooms::BEGIN - span);
        let first = drawn + (of + rank % of - drawn % of) % of;
        Rooms { first, step: step as u8, need }
    }

    /// The first of them.
    pub fn first(self) -> u64 {
        self.first
    }

    /// How many there are, and how the engine is told.
    pub fn need(self) -> Need {
        self.need
    }

    /// All of them, in the order of the prompts.
    pub fn all(self) -> impl Iterator<Item = u64> {
        (0..u64::from(self.need.rooms)).map(move |at| self.first + at * u64::from(self.step))
    }
}
