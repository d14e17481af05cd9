//! Explains why channels stopped: decodes notifier, requests and log, and inspects the submitted work.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gpu_hal::{ErrorCode, Evidence};

use crate::fault::{Fault, FaultKind};
use crate::runtime::Runtime;
use crate::shared::Shared;
use crate::wait::{Explain, OpenChannels, QueueState};
#[cfg(feature = "reports")]
use bundle::Event;

#[cfg(feature = "reports")]
mod bundle;
pub(crate) mod decode;
pub(crate) mod inspect;

/// Number of submissions of each channel in a fault report.
const ENTRIES: u32 = 4;
/// Largest delay of the kernel log after the notifier.
const LOG_DELAY: Duration = Duration::from_millis(50);
/// Largest delay of the lines about a refused access after the notifier, if an SM reported it before the MMU: the
/// kernel resets the engine between the two.
const MMU_DELAY: Duration = Duration::from_millis(500);

/// Reads on in the log for lines about an access of these channels, for at most [`MMU_DELAY`], and decodes the fault
/// again.
fn with_late_lines(device: &Shared, fault: Fault, evidence: &Evidence, ids: &[u32]) -> Fault {
    let Ok(mut lines) = fault.log.clone() else { return fault };
    let start = Instant::now();
    loop {
        match device.kernel_log_late(ids) {
            Ok(late) if late.is_empty() && start.elapsed() < MMU_DELAY => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(late) => {
                lines.extend(late);
                return decode::decode(fault.notifier, Ok(lines), evidence, ids);
            }
            Err(_) => return fault,
        }
    }
}

/// Prints what the stopped work has printed. Returns whether an assertion has failed; adds its messages to the fault.
fn take_messages(runtime: &Runtime, fault: &mut Fault) -> bool {
    let messages = runtime.failed();
    let is_assertion = match fault.pc {
        Some(pc) => runtime.is_assertion(pc),
        None => matches!(fault.kind, FaultKind::Sm(_)) && !messages.is_empty(),
    };
    if is_assertion {
        fault.kind = FaultKind::Assert;
        fault.details.extend(messages);
    }
    is_assertion
}

/// The implementation of [`Explain`] for queues.
#[derive(Debug)]
pub(crate) struct Diagnosis;

impl Explain for Diagnosis {
    /// Reads the kernel log until it reports the end of these channels, for at most [`LOG_DELAY`].
    fn fault(&self, queue: &QueueState, code: ErrorCode, channels: &OpenChannels) -> Fault {
        let device = &queue.device;
        let start = Instant::now();
        let ids = channels.group.channel_ids();
        let log = loop {
            match device.kernel_log_about(&ids) {
                Ok(Some(lines)) => break Ok(lines),
                Ok(None) if start.elapsed() >= LOG_DELAY => break device.kernel_log_rest(),
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(reason) => break Err(reason),
            }
        };
        let evidence = channels.group.evidence();
        let mut fault = decode::decode(code, log, &evidence, &ids);
        if code == ErrorCode::EngineException && fault.kind == FaultKind::Mmu && fault.address.is_none() {
            fault = with_late_lines(device, fault, &evidence, &ids);
        }
        fault.submissions = inspect::submissions(device, channels, queue.timeline.gpu_va(), ENTRIES);
        let is_assertion = device.runtime().is_some_and(|runtime| take_messages(&runtime, &mut fault));
        fault.location = match fault.pc.filter(|_| !is_assertion) {
            Some(pc) => device.locate(pc),
            // The GPU does not report the kernel: take the first kernel of the first submission that has not ended.
            None => inspect::kernel_of(device, &fault.submissions, queue.timeline.value() + 1)
                .or_else(|| queue.last_location()),
        };
        fault.nearest = fault.address.and_then(|address| inspect::nearest(device, address));
        fault.grid = inspect::grid_of(device, &fault);
        #[cfg(feature = "reports")]
        {
            fault.bundle = bundle::automatic(device, Event::Fault { slot: queue.slot, fault: &fault });
        }
        tracing::debug!(queue = queue.slot, %fault, log = ?fault.log, "channel group stopped");
        fault
    }

    #[cfg(feature = "reports")]
    fn time_out(&self, queue: &QueueState, timeout: Duration, text: &str) -> Option<PathBuf> {
        bundle::automatic(&queue.device, Event::TimeOut { slot: queue.slot, timeout, text })
    }

    #[cfg(not(feature = "reports"))]
    fn time_out(&self, _queue: &QueueState, _timeout: Duration, _text: &str) -> Option<PathBuf> {
        None
    }
}
