//! The stages: a table, and what their functions share.

mod driver;
mod environment;
mod faults;
mod host;
mod kernels;
mod rig;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use kernel_door::Door;
use tegra_hcq::{DeviceKind, DeviceName};

use super::record::{Outcome, Recorder};
use super::trace::TraceDoor;
pub(super) use driver::is_present;
pub(super) use kernels::{CHAIN_WAYS, HANGS, NO_EFFECT, chain_verdict};

/// Factor by which loops are shorter on the software Orin, which interprets kernels.
const MODEL_SHORTER: usize = 50;
/// Shortest wait on the software Orin, whose machine may be busy with other work.
pub(super) const MODEL_PATIENCE: Duration = Duration::from_secs(30);
/// Shortest deadline of a stage on the software Orin.
const MODEL_DEADLINE: Duration = Duration::from_secs(180);

/// What a stage's function returns: [`Outcome::Passed`] or [`Outcome::NotApplicable`]; an error is a failure.
type Run = fn(&Context) -> Result<Outcome>;

/// How much of a stage applies to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Applies {
    /// All of it.
    Fully,
    /// All but this.
    Partly(&'static str),
}

/// One stage.
#[derive(Debug)]
pub(super) struct Stage {
    /// Its number.
    pub(super) number: u8,
    /// One or two words.
    pub(super) name: &'static str,
    /// What it does, in one line.
    pub(super) about: &'static str,
    /// Stages that must have passed, or not apply.
    pub(super) needs: &'static [u8],
    /// Longest time that it may take on a board, in seconds.
    seconds: u64,
    /// Whether it provokes faults, which a driver that recovers badly may not survive.
    pub(super) destructive: bool,
    /// What to do if it fails.
    pub(super) cure: &'static str,
    /// How much of it applies to NVIDIA's desktop driver.
    desktop: Applies,
    run: Run,
}

/// A harmless stage that needs no other and applies to every driver.
const USUAL: Stage = Stage {
    number: 0,
    name: "",
    about: "",
    needs: &[],
    seconds: 0,
    destructive: false,
    cure: "attach the report to an issue; the later stages that need this one are skipped",
    desktop: Applies::Fully,
    run: environment::run,
};

/// All stages in the order in which they run.
pub(super) static ALL: [Stage; 15] = [
    Stage {
        number: 0,
        name: "environment",
        about: "reads board, release, power mode, modules, users of the GPU and access to the kernel log",
        seconds: 20,
        cure: "run `orin doctor`, which says what is missing and how to fix it",
        desktop: Applies::Partly("the doctor, which examines the Orin's nodes"),
        run: environment::run,
        ..USUAL
    },
    Stage {
        number: 1,
        name: "nodes",
        about: "opens the device nodes and asks for the GPU's characteristics, SMs, TPC masks and engines",
        seconds: 20,
        cure: "run `orin doctor`, which says what is missing and how to fix it",
        desktop: Applies::Partly("requests of nvgpu: characteristics, VSMs, TPC masks, engines"),
        run: driver::nodes,
        ..USUAL
    },
    Stage {
        number: 2,
        name: "memory",
        about: "allocates memory in each cache mode, maps it for CPU and GPU, and unmaps it",
        needs: &[1],
        seconds: 20,
        desktop: Applies::Partly("cache modes of nvmap; each use of memory is tried instead"),
        run: driver::memory,
        ..USUAL
    },
    Stage {
        number: 3,
        name: "channel",
        about: "creates address space, TSG, subcontext, compute and copy channel, and closes them",
        needs: &[2],
        seconds: 30,
        desktop: Applies::Partly("address space, TSG and subcontext one by one"),
        run: driver::channel,
        ..USUAL
    },
    Stage {
        number: 4,
        name: "semaphores",
        about: "releases semaphores by the host engine: 32 and 64 bits, time stamp, wait for idle",
        needs: &[3],
        seconds: 30,
        run: host::semaphores,
        ..USUAL
    },
    Stage {
        number: 5,
        name: "events",
        about: "sleeps until the GPU's interrupt, 1,000 times, and measures the latency",
        needs: &[4],
        seconds: 60,
        cure: "attach the report to an issue; programs can wait by spinning (WaitPolicy::Spin)",
        run: host::events,
        ..USUAL
    },
    Stage {
        number: 6,
        name: "compute",
        about: "sets up the compute class: windows, local memory, and a release that waits for it",
        needs: &[4],
        seconds: 30,
        run: host::compute,
        ..USUAL
    },
    Stage {
        number: 7,
        name: "one thread",
        about: "a kernel of one thread stores one word, launched by each PCAS action",
        needs: &[6],
        seconds: 60,
        run: kernels::one_thread,
        ..USUAL
    },
    Stage {
        number: 8,
        name: "vector add",
        about: "adds two vectors and compares the hash of the sum",
        needs: &[7],
        seconds: 60,
        run: kernels::vector_add,
        ..USUAL
    },
    Stage {
        number: 9,
        name: "chains",
        about: "chains of 2 and 8 launches by each encoding; a release by the descriptor, 200 times",
        needs: &[8],
        seconds: 90,
        cure: "attach the report to an issue; programs run without chains (NVGPU_CHAIN=none)",
        run: kernels::chains,
        ..USUAL
    },
    Stage {
        number: 10,
        name: "caches",
        about: "rewrites inputs in place 10,000 times, by invalidation and mapping flags; atomics",
        needs: &[8],
        seconds: 300,
        desktop: Applies::Partly("mapping flags of nvgpu"),
        run: kernels::caches,
        ..USUAL
    },
    Stage {
        number: 11,
        name: "copies",
        about: "copies by the copy engine: unaligned sizes, addresses above 4 GiB",
        needs: &[4],
        seconds: 60,
        run: host::copies,
        ..USUAL
    },
    Stage {
        number: 12,
        name: "preemption",
        about: "sets the preemption mode; measures one queue's latency beside a kernel of 200 ms in another",
        needs: &[8],
        seconds: 60,
        cure: "attach the report to an issue; keep kernels short while a desktop session runs",
        desktop: Applies::Partly("SET_PREEMPTION_MODE of nvgpu"),
        run: kernels::preemption,
        ..USUAL
    },
    Stage {
        number: 13,
        name: "faults",
        about: "a store to an unmapped address, a misaligned load and a trap: notifier and log lines with times",
        needs: &[8],
        seconds: 120,
        destructive: true,
        desktop: Applies::Partly("lines and notifiers of nvgpu; the driver reports RC codes and Xid lines"),
        run: faults::provoke,
        ..USUAL
    },
    Stage {
        number: 14,
        name: "recovery",
        about: "an endless kernel, stopped by FORCE_RESET; then closed without a reset; then a fresh launch",
        needs: &[8, 12],
        seconds: 120,
        destructive: true,
        cure: "attach the report to an issue; reboot before further work on the GPU",
        desktop: Applies::Partly("closing without a reset, which only nvgpu may not survive"),
        run: faults::recover,
    },
];

/// The stage with a number.
pub(super) fn by_number(number: u8) -> Option<&'static Stage> {
    ALL.iter().find(|stage| stage.number == number)
}

impl Stage {
    /// Longest time that the stage may take.
    pub(super) fn deadline(&self, kind: DeviceKind) -> Duration {
        let board = Duration::from_secs(self.seconds);
        if kind == DeviceKind::Sim { board.max(MODEL_DEADLINE) } else { board }
    }

    /// How much of the stage applies to a device.
    pub(super) fn applies(&self, kind: DeviceKind) -> Applies {
        if kind == DeviceKind::Nvrm { self.desktop } else { Applies::Fully }
    }

    /// Runs the stage's function. What does not apply to the device is recorded, and added to the outcome's text.
    pub(super) fn run(&self, context: &Context) -> Result<Outcome> {
        let Applies::Partly(missing) = self.applies(context.device.kind) else { return (self.run)(context) };
        context.recorder.fact("not_applicable", missing);
        Ok(Self::without(missing, (self.run)(context)?))
    }

    /// The outcome of a stage of which a part does not apply.
    fn without(missing: &str, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Passed(text) => Outcome::Passed(format!("{text}; n/a here: {missing}")),
            other => other,
        }
    }
}

/// What a stage's function knows.
#[derive(Debug)]
pub(super) struct Context {
    /// Kind of the device; never `Auto`.
    pub(super) device: DeviceName,
    /// Records the calls.
    pub(super) tracer: Arc<TraceDoor>,
    /// Collects facts.
    pub(super) recorder: Arc<Recorder>,
    /// Shortest wait on the software Orin.
    pub(super) model_patience: Duration,
}

impl Context {
    /// The door to the kernel.
    fn door(&self) -> Arc<dyn Door> {
        Arc::clone(&self.tracer) as _
    }

    /// Whether the device is the software Orin.
    fn is_model(&self) -> bool {
        self.device.kind == DeviceKind::Sim
    }

    /// Whether the device has the Orin's driver interface.
    fn is_nvgpu(&self) -> bool {
        matches!(self.device.kind, DeviceKind::Nvgpu | DeviceKind::Sim)
    }

    /// How long to wait for what takes at most `time` on a board.
    fn patience(&self, time: Duration) -> Duration {
        if self.is_model() { time.max(self.model_patience) } else { time }
    }

    /// Rounds of a loop that has `board` rounds on a board.
    fn rounds(&self, board: usize) -> usize {
        if self.is_model() { (board / MODEL_SHORTER).max(4) } else { board }
    }
}

/// Microseconds, as a number for a report.
fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_numbered_and_need_earlier_ones() {
        for (index, stage) in ALL.iter().enumerate() {
            assert_eq!(usize::from(stage.number), index);
            assert!(stage.needs.iter().all(|need| *need < stage.number), "{}", stage.name);
            // A destructive stage must not stop a harmless one.
            let needed = stage.needs.iter().filter_map(|need| by_number(*need));
            assert!(needed.filter(|need| need.destructive).count() == 0, "{}", stage.name);
            assert!(stage.deadline(DeviceKind::Nvgpu) <= Duration::from_secs(300));
        }
        assert!(by_number(15).is_none());
    }

    #[test]
    fn what_does_not_apply_to_a_device_is_named() {
        for stage in &ALL {
            for kind in [DeviceKind::Nvgpu, DeviceKind::Sim] {
                assert_eq!(stage.applies(kind), Applies::Fully, "{}", stage.name);
            }
            // Functions that ask for the interface of nvgpu leave something out on another driver.
            let partly = [0, 1, 2, 3, 10, 12, 13, 14].contains(&stage.number);
            let applies = stage.applies(DeviceKind::Nvrm);
            assert_eq!(matches!(applies, Applies::Partly(_)), partly, "{}", stage.name);
        }
        let stage = by_number(12).unwrap();
        let Applies::Partly(missing) = stage.applies(DeviceKind::Nvrm) else { panic!() };
        let passed = Stage::without(missing, Outcome::Passed("it works".to_owned()));
        assert_eq!(passed.text(), "it works; n/a here: SET_PREEMPTION_MODE of nvgpu");
        let failed = Outcome::Failed("it does not".to_owned());
        assert_eq!(Stage::without(missing, failed.clone()), failed);
    }
}
