//! Mixed load with random faults for a given duration.
//!
//! Threads with two queues each do what programs do and check every result. Now and then a thread injects a
//! fault. It checks that the fault is reported correctly, that nothing else fails, and that the device
//! continues. After each short period all threads release their resources. The run then compares the
//! resources of process, allocator and model with the first period.
//!
//! A thread's random decisions depend only on the seed; the interleaving of threads does not.

mod disturb;
mod faults;
mod ledger;
mod work;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpu_log::Kind;
use orin_sim::LiveCounts;
use parking_lot::{Mutex, RwLock};
use tegra_hcq::{Device, PoolUsage};

use super::fixtures::{case, ensure};
use ledger::Ledger;
use test_harness::{Check, Context, Skip, Suite};
use test_support::Numbers;
use test_support::process::{self, Resources};
use worker::Worker;

/// The suite. It is meant for long runs, so only `--suite soak` runs it.
pub static SUITE: Suite = Suite {
    name: "soak",
    about: "mixed load with random faults for a duration; runs only if named",
    orin_only: false,
    tests: &[case!(mixed_load_with_faults, "every fault is reported correctly, nothing leaks", soak)
        .for_a_time()
        .limited_to(Duration::from_secs(240))
        .expecting(Kind::Mmu)
        .allowing(&[Kind::Sm, Kind::Hang])],
};

/// Default length of a run.
const LENGTH: Duration = Duration::from_secs(600);
/// Threads of the load. Each has two queues, and two queues must remain for replacements.
const THREADS: usize = 3;
/// Time that the threads work between two resource counts.
const PERIOD: Duration = Duration::from_secs(5);
/// Periods in the life of a device.
const PERIODS: u32 = 12;
/// Mappings that a process may gain without a leak: malloc keeps per-thread arenas.
const MAPPINGS: usize = 100;
/// Resident memory that a process may gain without a leak, in bytes.
const RESIDENT: u64 = 96 << 20;
/// Kernel faults per 1000 decisions.
const FAULTS: u32 = 60;
/// Disturbances per 1000 decisions, on a model.
const DISTURBANCES: u32 = 20;

/// State shared by the threads of a run.
struct Soak<'a> {
    context: &'a Context,
    ledger: Ledger,
    /// Held for reading by operations, for writing by disturbances.
    calm: RwLock<()>,
    /// Held while a queue is replaced.
    replacing: Mutex<()>,
    /// Set if a thread failed; the others then stop.
    failed: AtomicBool,
    begun: Instant,
    length: Duration,
}

/// Resources counted between periods.
#[derive(Clone, Copy, Debug)]
struct Counts {
    live: Option<LiveCounts>,
    usage: PoolUsage,
    descriptors: usize,
}

fn soak(context: &Context) -> Check {
    let seed = context.seed();
    let soak = Soak {
        context,
        ledger: Ledger::new(),
        calm: RwLock::new(()),
        replacing: Mutex::new(()),
        failed: AtomicBool::new(false),
        begun: Instant::now(),
        length: context.load_time(LENGTH),
    };
    let result = soak.lives(&mut Numbers::new(seed));
    context.note(format!("seed {seed}, {:.0} s", soak.begun.elapsed().as_secs_f64()));
    soak.ledger.summary().into_iter().for_each(|line| context.note(line));
    if context.is_stopped() && result.is_ok() {
        let text = format!("interrupted after {:.0} s; seed {seed}", soak.begun.elapsed().as_secs_f64());
        return Err(Skip(text).into());
    }
    result.map_err(|error| format!("{error}\nseed {seed}; the last steps:{}", soak.ledger.tail()).into())
}

impl Soak<'_> {
    fn over(&self) -> bool {
        self.begun.elapsed() >= self.length
            || self.failed.load(Ordering::Relaxed)
            || self.context.is_stopped()
    }

    /// Opens devices one after another.
    fn lives(&self, numbers: &mut Numbers) -> Check {
        let live = || self.context.orin().map(orin_sim::SoftwareOrin::live);
        let (before, mut first) = (live(), None);
        loop {
            self.life(numbers)?;
            self.settle(|| {
                let now = live();
                ensure(now == before, || format!("the device leaked: {before:?}, now {now:?}"))
            })?;
            let resident = process::resident_bytes();
            let (start, least): (Resources, u64) = *first.get_or_insert((process::resources(), resident));
            self.settle(|| {
                process::within(start, MAPPINGS)?;
                let held = process::resources();
                ensure(held.descriptors <= start.descriptors, || {
                    format!("descriptors: {start:?}, now {held:?}")
                })
            })?;
            ensure(resident < least + RESIDENT, || format!("resident bytes: {least}, now {resident}"))?;
            if self.over() {
                self.context.note(format!(
                    "resident memory {} MiB, at first {} MiB",
                    resident >> 20,
                    least >> 20
                ));
                // An interrupted run need not have reached every kind.
                let unreported = self.ledger.unreported().filter(|_| !self.context.is_stopped());
                return unreported.map_or(Ok(()), |text| Err(text.into()));
            }
        }
    }

    /// Waits until `check` holds. On a busy machine the model's thread closes its resources slightly later.
    ///
    /// # Errors
    ///
    /// The error of the last check.
    fn settle(&self, check: impl Fn() -> Check) -> Check {
        let end = Instant::now() + super::fixtures::patience(self.context);
        loop {
            match check() {
                Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
                result => return result,
            }
        }
    }

    /// Opens a device and lets the threads work a few periods; counts resources after each.
    fn life(&self, numbers: &mut Numbers) -> Check {
        let door = std::sync::Arc::clone(self.context.door());
        let device = Device::open_through(door, self.context.name())?;
        let mut first = None;
        for period in 0..PERIODS {
            self.period(&device, numbers, period == 0)?;
            device.trim();
            let counts = || Counts {
                live: self.context.orin().map(orin_sim::SoftwareOrin::live),
                usage: device.memory_usage(),
                descriptors: process::resources().descriptors,
            };
            let start = *first.get_or_insert_with(counts);
            self.settle(|| {
                let now = counts();
                // The first count may include a descriptor that was about to be closed.
                let fits = (now.live, now.usage) == (start.live, start.usage)
                    && now.descriptors <= start.descriptors;
                ensure(fits, || format!("period {period} leaked: {start:?}, now {now:?}"))
            })?;
            if self.over() {
                break;
            }
        }
        Ok(())
    }

    /// Lets the threads work for a while; in the first period, one thread runs everything once.
    fn period(&self, device: &Device, numbers: &mut Numbers, first: bool) -> Check {
        let seeds: [u64; THREADS] = std::array::from_fn(|_| u64::from(numbers.u32()));
        let end = Instant::now() + PERIOD;
        let results = std::thread::scope(|scope| {
            let run = |number: usize, seed| {
                let result = self.thread(device, number, seed, end, first && number == 0);
                self.failed.fetch_or(result.is_err(), Ordering::Relaxed);
                result
            };
            let threads: Vec<_> = seeds
                .into_iter()
                .enumerate()
                .map(|(number, seed)| scope.spawn(move || run(number, seed)))
                .collect();
            self.watch(|| threads.iter().all(|thread| thread.is_finished()));
            threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
        });
        for (number, result) in results.into_iter().enumerate() {
            result.map_err(|_| "a thread panicked")?.map_err(|error| format!("thread {number}: {error}"))?;
        }
        Ok(())
    }

    /// Reports progress each second.
    fn watch(&self, done: impl Fn() -> bool) {
        let mut reported = Instant::now();
        while !done() {
            std::thread::sleep(Duration::from_millis(20));
            if reported.elapsed() >= Duration::from_secs(1) {
                reported = Instant::now();
                let (operations, faults) = self.ledger.totals();
                let (now, all) = (self.begun.elapsed().as_secs(), self.length.as_secs());
                self.context.tick(&format!("{now} of {all} s: {operations} operations, {faults} faults"));
            }
        }
    }

    fn thread(&self, device: &Device, number: usize, seed: u64, end: Instant, all: bool) -> Check {
        let mut worker = {
            let _calm = self.calm.read();
            Worker::new(self, device, number, seed)?
        };
        if all {
            (0..work::OPERATIONS.len()).try_for_each(|at| self.operation(&mut worker, at))?;
            (0..faults::KINDS.len()).try_for_each(|at| self.fault(&mut worker, at))?;
            (0..disturb::KINDS.len()).try_for_each(|at| self.disturbance(&mut worker, at))?;
        }
        while !self.over() && Instant::now() < end {
            let draw = worker.below(1000);
            let pick = |worker: &mut Worker<'_>, len: usize| worker.below(len as u32) as usize;
            if draw < DISTURBANCES && self.context.orin().is_some() {
                let at = pick(&mut worker, disturb::KINDS.len());
                self.disturbance(&mut worker, at)?;
            } else if draw < DISTURBANCES + FAULTS {
                let at = pick(&mut worker, faults::KINDS.len());
                self.fault(&mut worker, at)?;
            } else {
                let at = pick(&mut worker, work::OPERATIONS.len());
                self.operation(&mut worker, at)?;
            }
        }
        // Closing a queue sends requests, which an injected failure must not hit.
        let _calm = self.calm.read();
        drop(worker);
        Ok(())
    }

    fn operation(&self, worker: &mut Worker<'_>, at: usize) -> Check {
        let _calm = self.calm.read();
        let (name, operation) = work::OPERATIONS[at];
        self.ledger.operation(worker.number, name);
        operation(worker).map_err(|error| format!("{name}: {error}").into())
    }

    fn fault(&self, worker: &mut Worker<'_>, at: usize) -> Check {
        let _calm = self.calm.read();
        let (name, provoke) = faults::KINDS[at];
        provoke(worker, name).map_err(|error| format!("{name}: {error}").into())
    }

    fn disturbance(&self, worker: &mut Worker<'_>, at: usize) -> Check {
        let Some(orin) = self.context.orin() else { return Ok(()) };
        let _alone = self.calm.write();
        let (name, disturb) = disturb::KINDS[at];
        disturb(worker, orin, name).map_err(|error| format!("{name}: {error}").into())
    }
}
