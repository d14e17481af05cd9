//! `cuLink*`: several images become one cubin.

use parking_lot::Mutex;

/// A link in progress.
#[derive(Debug)]
pub struct Link {
    handle: u64,
    #[expect(dead_code, reason = "inputs")]
    inputs: Mutex<Vec<Vec<u8>>>,
}

impl Link {
    /// Its handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }
}
