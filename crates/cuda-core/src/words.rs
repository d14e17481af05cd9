//! What streams do to words of memory: waits until a word meets a condition, writes, barriers.

use tegra_hcq::{AcquireCondition, Payload, Queue};

use crate::code::Result;

/// A step. Whoever makes one promises that the memory stays valid until the work has ended.
#[derive(Clone, Copy, Debug)]
pub enum WordStep {
    /// Waits until the word at an address, compared with a value, meets a condition.
    Wait(u64, Payload, AcquireCondition),
    /// Writes a value to an address after all earlier work, whose writes are seen before.
    Write(u64, Payload),
    /// Makes earlier writes visible everywhere.
    Barrier,
}

/// Steps in order.
#[derive(Debug)]
pub struct Words {
    /// The steps.
    pub steps: Box<[WordStep]>,
    /// What the program has passed for each (`CUstreamBatchMemOpParams`), for questions about a graph's node.
    pub program: Box<[[u64; 6]]>,
}

impl Words {
    /// Adds the steps to a queue.
    pub(crate) fn encode(&self, queue: &mut Queue) -> Result<()> {
        for step in &self.steps {
            // SAFETY: whoever made the step promised that the memory is valid until the work has ended.
            unsafe {
                match *step {
                    WordStep::Wait(address, value, condition) => queue.poll_raw(address, value, condition)?,
                    WordStep::Write(address, value) => queue.write_raw(address, value)?,
                    WordStep::Barrier => queue.memory_barrier()?,
                }
            }
        }
        Ok(())
    }
}
