//! Going on after a fault.
//!
//! When the kernel stops a channel it takes the whole TSG out of service; nothing brings it back but new
//! channels. Memory, the address space and other TSGs are untouched. Recovery therefore concerns single
//! queues: their channels are stopped (a hanging kernel with them), what they never finished is counted as
//! lost, and the queue opens new channels when it is used next.

use std::sync::Arc;

use gpu_hal::ErrorCode;

use crate::device::Device;
use crate::diagnose::decode::decode;
use crate::error::{Error, Result};
use crate::fault::{Fault, FaultKind};
use crate::shared::Shared;
use crate::wait::{Health, QueueState};
use gpu_hal::Evidence;

/// What [`Device::recover`](crate::Device::recover) has done.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// Why the queues that were stopped by the GPU had been stopped.
    pub faults: Vec<Arc<Fault>>,
    /// Number of queues that were stopped because a wait for them had run out.
    pub hanging: usize,
}

impl Recovery {
    /// Whether there was nothing to do.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty() && self.hanging == 0
    }
}

impl Device {
    /// Stops and rebuilds what has faulted or hangs, and goes on: see [`Recovery`].
    ///
    /// Queues that have faulted, or on which a wait has run out for work that has not ended since, are
    /// stopped; their unfinished work is lost, and the fences of that work keep saying why (after many
    /// recoveries of a queue the oldest no longer have the log's lines and the commands). Each such queue
    /// gets new channels at its next use. Buffers and programs survive; what lost work should have written
    /// is unspecified.
    ///
    /// # Errors
    ///
    /// When the driver refuses to stop a channel.
    pub fn recover(&self) -> Result<Recovery> {
        recover(self.shared())
    }
}

/// Stops and forgives every queue in trouble.
fn recover(device: &Arc<Shared>) -> Result<Recovery> {
    let _span = tracing::debug_span!("recover").entered();
    // A queue that another recovery forgives between the check and the stop below may be at work again: the stop
    // would hit its new channels.
    let _alone = device.begin_recovery();
    let mut recovery = Recovery::default();
    for state in device.heap().queues::<QueueState>() {
        match state.check() {
            Err(Error::Fault(fault)) => {
                state.forgive(|| Fault::clone(&fault))?;
                tracing::debug!(queue = state.slot, "faulted queue stopped");
                recovery.faults.push(fault);
            }
            _ if state.health() == Health::Working && state.has_timed_out() => {
                state.forgive(|| abandoned(&state))?;
                tracing::debug!(queue = state.slot, "hanging queue stopped");
                recovery.hanging += 1;
            }
            _ => {}
        }
    }
    device.heap().sweep();
    tracing::info!(faults = recovery.faults.len(), hanging = recovery.hanging, "device recovered");
    Ok(recovery)
}

/// The reason for work that hung until it was stopped.
fn abandoned(state: &QueueState) -> Fault {
    let mut fault = decode(ErrorCode::ChannelReset, Ok(Vec::new()), &Evidence::default());
    fault.kind = FaultKind::Abandoned;
    fault.location = state.last_location();
    fault
}
