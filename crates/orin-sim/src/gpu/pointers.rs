//! Host's position in a channel's pushbuffer, as shown in USERD.
//!
//! GET is the next word, PUT the end of its segment. TOP_LEVEL_GET follows GET in segments of level MAIN and stays
//! unchanged in subroutines. Before the first segment of level MAIN it is not valid (GA100 `dev_pbdma`, `dev_ram`).

use ampere_cmd::gpfifo::{Level, Segment, userd};

use crate::memory::Memory;

/// The remainder of the current pushbuffer segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remaining {
    pub(super) va: u64,
    pub(super) words: u32,
}

/// The pointers that host writes to USERD: the next word, the end of its segment, and the next word of level MAIN.
/// Silicon writes them occasionally, the model after each slice.
#[derive(Debug, Default)]
pub(super) struct Pointers {
    put: u64,
    top_level: u64,
    /// Whether a segment of level MAIN has been fetched.
    valid: bool,
    /// Whether the segment is of level MAIN.
    main: bool,
    /// The values written last: GET, PUT and TOP_LEVEL_GET.
    shown: [u64; 3],
}

/// TOP_LEVEL_GET_HI: whether the address is valid (GA100 `dev_pbdma`).
const TOP_LEVEL_GET_VALID: u32 = 1 << 31;

impl Pointers {
    /// Starts another segment.
    pub(super) fn begin(&mut self, segment: &Segment) {
        if self.main {
            self.top_level = self.put;
        }
        self.main = segment.level == Level::Main;
        self.valid |= self.main;
        self.put = segment.va + u64::from(segment.words) * 4;
    }

    /// Writes the pointers that have changed.
    pub(super) fn show(&mut self, segment: Option<Remaining>, userd: &Memory) {
        let get = segment.map_or(self.put, |segment| segment.va);
        if self.main {
            self.top_level = get;
        }
        let now = [get, self.put, self.top_level];
        if now == self.shown {
            return;
        }
        self.shown = now;
        let valid = if self.valid { TOP_LEVEL_GET_VALID } else { 0 };
        for ((low, high), (value, flag)) in [
            (userd::GET, userd::GET_HI),
            (userd::PUT, userd::PUT_HI),
            (userd::TOP_LEVEL_GET, userd::TOP_LEVEL_GET_HI),
        ]
        .into_iter()
        .zip(now.into_iter().zip([0, 0, valid]))
        {
            // CAST: halves of 40 bits, and offsets below 512.
            userd.store(low as usize, value as u32);
            userd.store(high as usize, (value >> 32) as u32 | flag);
        }
    }
}
