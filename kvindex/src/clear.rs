//! A holder's whole content gone at once. Owns clears and sweeps; must never make a clear wait for a sweep.
//!
//! A clear takes the holder's bit out of the valid set of every place in use, one store a place: readers see it
//! then. The bits that stay in the slots mean nothing and are swept place by place: in slices between
//! batches, or at the latest when the holder (or the next lease of its bit) stores into that place. One
//! sweep of a place cleans it for all holders cleared until then.

use crate::holders::Holder;
use crate::writer::Writer;

impl Writer {
    /// Forgets all blocks of a holder, and that it was partial. Readers see it when this returns.
    pub fn clear(&mut self, holder: Holder) {
        if !self.bits.knows(holder) {
            return;
        }
        let bit = holder.bit();
        if self.bits.held(bit) > 0 {
            let used = self.fills.iter_mut().enumerate().filter(|(_, fill)| fill.end > fill.first);
            for (place, fill) in used {
                self.shared.invalidate(place, bit);
                fill.stale = true;
            }
        }
        self.shared.count_clear(bit);
        self.shared.set_partial(bit, false);
        *self.bits.held_mut(bit) = 0;
    }

    /// Sweeps up to `places` places (some tens of microseconds each); how many still wait. To be called
    /// between batches until 0.
    pub fn sweep(&mut self, places: usize) -> usize {
        let mut left = places;
        for _ in 0..self.fills.len() {
            if left == 0 {
                break;
            }
            if self.fills[self.sweep_at].stale {
                self.sweep_place(self.sweep_at);
                left -= 1;
            }
            self.sweep_at = (self.sweep_at + 1) % self.fills.len();
        }
        self.fills.iter().filter(|fill| fill.stale).count()
    }

    /// Cleans a place before `bit` is used in it, if that bit may be stale there.
    #[inline(always)]
    pub(crate) fn make_valid(&mut self, place: usize, bit: usize) {
        if self.fills[place].stale {
            let valid = self.shared.valid(place, bit / 64);
            if valid >> (bit % 64) & 1 == 0 {
                self.sweep_place(place);
            }
        }
    }

    /// Takes every stale bit out of a place's slots, then makes all holders valid in it.
    #[cold]
    pub(crate) fn sweep_place(&mut self, place: usize) {
        let words = self.shared.plan.words;
        let mut live = 0;
        for (at, _) in self.shared.used(place) {
            let mut any = 0;
            for word in 0..words {
                let bits = self.shared.raw::<0>(at, word);
                let kept = bits & self.shared.valid(place, word);
                if kept != bits {
                    self.shared.set_raw::<0>(at, word, kept);
                }
                any |= kept;
            }
            live += u32::from(any != 0);
        }
        self.shared.validate(place);
        let fill = &mut self.fills[place];
        fill.live = live;
        fill.stale = false;
    }
}
