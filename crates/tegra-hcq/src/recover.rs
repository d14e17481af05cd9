//! Recovery after a fault.
//!
//! When the kernel stops a channel, it takes the whole TSG out of service; only new channels restore it. Memory, the
//! address space and other TSGs are not affected. Recovery therefore works per queue: it stops the channels (and with
//! them a hanging kernel), counts unfinished work as lost, and the queue opens new channels at its next use.

use std::sync::Arc;

use gpu_hal::ErrorCode;

use crate::device::Device;
use crate::diagnose::decode::decode;
use crate::error::{Error, Result};
use crate::fault::{Fault, FaultKind};
use crate::shared::Shared;
use crate::wait::{Health, QueueState};
use gpu_hal::Evidence;

/// Result of [`Device::recover`](crate::Device::recover).
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// // Nothing has failed.
/// let recovery = device.recover()?;
/// assert!(recovery.is_empty() && recovery.faults.is_empty());
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// Faults of the queues that the GPU had stopped.
    pub faults: Vec<Arc<Fault>>,
    /// Number of queues that were stopped because a wait for them had timed out.
    pub hanging: usize,
}

impl Recovery {
    /// Whether no queue needed recovery.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty() && self.hanging == 0
    }
}

impl Device {
    /// Recovers all queues that have faulted or hang: see [`Recovery`].
    ///
    /// Stops queues that have faulted, and queues on which a wait has timed out for work that has not ended since.
    /// Their unfinished work is lost, and its fences keep reporting the cause. After many recoveries of a queue, its
    /// oldest reports no longer contain the log lines and the commands. Each of these queues opens new channels at its
    /// next use. Buffers and programs remain valid; memory that lost work was to write has unspecified contents.
    ///
    /// # Errors
    ///
    /// Returns an error if the driver refuses to stop a channel.
    pub fn recover(&self) -> Result<Recovery> {
        recover(self.shared())
    }
}

/// Stops all faulted and hanging queues and marks them for new channels.
fn recover(device: &Arc<Shared>) -> Result<Recovery> {
    let _span = tracing::debug_span!("recover").entered();
    // Another recovery may mark a queue between the check and the stop below. The queue may then already run work on
    // new channels, which the stop would hit.
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
    device.heap().sweep_all();
    tracing::info!(faults = recovery.faults.len(), hanging = recovery.hanging, "device recovered");
    Ok(recovery)
}

/// The fault reported for work that hung until it was stopped.
fn abandoned(state: &QueueState) -> Fault {
    let mut fault = decode(ErrorCode::ChannelReset, Ok(Vec::new()), &Evidence::default(), &[]);
    fault.kind = FaultKind::Abandoned;
    fault.location = state.last_location();
    fault
}
