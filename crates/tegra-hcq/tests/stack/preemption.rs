//! Unfinished kernels and other users of the GPU: preemption modes, context-switch time-outs, channels that are closed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel_door::Door;
use nvgpu_sys::channel::{SetTimeoutEx, code};
use orin_sim::gpu::Activity;
use orin_sim::{Call, Config, Failure, SoftwareOrin};
use rustix::io::Errno;
use tegra_hcq::{
    Buffer, Device, DeviceKind, Error, ErrorCode, FaultKind, Preemption, Program, Queue, QueueOptions, args,
};
use test_support::{TIMEOUT, cubin};

/// Period of context-switch time-outs in these tests. 31 of them end a TSG.
const PERIOD: Duration = Duration::from_millis(4);
/// Longer than the 31 periods.
const LONGER: Duration = Duration::from_millis(400);

/// A software Orin and a device on it.
struct Bench {
    orin: SoftwareOrin,
    device: Device,
    endless: Program,
    basics: Program,
    /// The word that ends the endless kernel, and its output.
    words: Buffer<u32>,
}

/// Makes requests fail.
fn failing(failures: &[(u32, u64, Errno)]) -> Config {
    let failure = |&(code, nth, errno): &(u32, u64, Errno)| Failure { call: Call::Ioctl(code), nth, errno };
    Config {
        switch_timeout: PERIOD,
        failures: failures.iter().map(failure).collect(),
        ..test_support::config()
    }
}

/// Only WFI is left.
const NO_PREEMPTION: [(u32, u64, Errno); 2] =
    [(code::SET_PREEMPTION_MODE, 1, Errno::INVAL), (code::SET_PREEMPTION_MODE, 2, Errno::INVAL)];

impl Bench {
    fn new(config: Config) -> Self {
        let orin = SoftwareOrin::new(config).unwrap();
        let device = Device::open_through(Arc::new(orin.clone()), DeviceKind::Sim).unwrap();
        let [endless, basics] =
            ["faults", "basics"].map(|name| Program::load(&device, &cubin(name)).unwrap());
        let words = device.alloc_zeroed(2).unwrap();
        Self { orin, device, endless, basics, words }
    }

    /// Starts a kernel that does not end, on a new queue.
    fn start_endless(&self) -> Queue {
        let mut queue = self.device.queue().unwrap();
        let kernel = self.endless.kernel("fault_endless").unwrap();
        let out = self.device.alloc_zeroed::<u32>(1).unwrap();
        unsafe { queue.launch(&kernel, 1, 32, &args![&self.words, &out]) }.unwrap();
        let fence = queue.submit().unwrap();
        let start = Instant::now();
        while !self.is_running() {
            assert!(start.elapsed() < TIMEOUT, "the kernel does not start");
            std::thread::sleep(Duration::from_millis(1));
        }
        let error = fence.wait(Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        queue
    }

    /// Whether a kernel has started and not ended.
    fn is_running(&self) -> bool {
        let channels = (0..1 << 12).filter_map(|id| self.orin.channel_status(id));
        let mut activities = channels.map(|status| status.activity);
        activities.any(|activity| matches!(activity, Activity::RunningGrid { program_va: 1.., .. }))
    }

    /// Runs a kernel to its end on a new queue.
    fn run_another(&self, timeout: Duration) -> Result<(), Error> {
        let mut queue = self.device.queue_with(&QueueOptions::default().timeout(timeout))?;
        let data = self.device.alloc_zeroed::<u32>(32)?;
        let kernel = self.basics.kernel("increment")?;
        unsafe { queue.launch(&kernel, 1, 32, &args![&data, 32_u32]) }?;
        queue.submit()?.wait(timeout)?;
        assert_eq!(data.to_vec()?, [1; 32]);
        Ok(())
    }

    fn log(&self) -> String {
        self.orin.kernel_log().join("\n")
    }
}

#[test]
fn queues_are_preempted_at_any_instruction() {
    let bench = Bench::new(failing(&[]));
    let queue = bench.start_endless();
    assert_eq!(queue.preemption(), Some(Preemption::Instruction));
    std::thread::sleep(LONGER);
    bench.run_another(TIMEOUT).unwrap();
    std::thread::sleep(LONGER);
    bench.run_another(TIMEOUT).unwrap();
    assert!(!bench.log().contains("ctxsw timeout"), "{}", bench.log());
    drop(queue);
    bench.run_another(TIMEOUT).unwrap();
}

#[test]
fn a_driver_without_instruction_preemption_gets_the_next_best() {
    let bench = Bench::new(failing(&NO_PREEMPTION[..1]));
    assert_eq!(bench.device.queue().unwrap().preemption(), Some(Preemption::Block));
    let bench = Bench::new(failing(&NO_PREEMPTION));
    assert_eq!(bench.device.queue().unwrap().preemption(), Some(Preemption::Wait));
    let refused = failing(&[(code::SET_PREEMPTION_MODE, 1, Errno::NODEV)]);
    assert!(
        matches!(Bench::new(refused).device.queue(), Err(Error::Driver(_))),
        "another error is not a refusal"
    );
}

#[test]
fn without_preemption_a_long_kernel_ends_when_others_wait_too_long() {
    let bench = Bench::new(failing(&NO_PREEMPTION));
    let mut queue = bench.start_endless();
    // Nobody else wants the engine.
    std::thread::sleep(LONGER);
    assert!(matches!(queue.wait(Duration::ZERO), Err(Error::Timeout { .. })));
    bench.run_another(TIMEOUT).unwrap();
    let Err(Error::Fault(fault)) = queue.wait(TIMEOUT) else { panic!("the kernel went on") };
    assert_eq!(fault.kind, FaultKind::Other(ErrorCode::IdleTimeout));
    let log = bench.log();
    assert_eq!(log.matches("Host pfifo ctxsw timeout error").count(), 31, "{log}");
    assert!(log.contains("awaiting ack ms=3100"), "{log}");
}

/// Sets the limit of context-switch time-outs of all channels of the process.
fn set_switch_limit(orin: &SoftwareOrin, timeout: u32, flags: u32) {
    let mut count = 0;
    for fd in std::fs::read_dir("/proc/self/fd").unwrap() {
        let fd = fd.unwrap().file_name().to_str().unwrap().parse().unwrap();
        let mut args = SetTimeoutEx { timeout, flags };
        // SAFETY: the request reads and writes `args` only. Other descriptors refuse it.
        let answer = unsafe { orin.ioctl(fd, code::SET_TIMEOUT_EX, core::ptr::from_mut(&mut args).cast()) };
        count += u32::from(answer.is_ok());
    }
    assert!(count >= 2, "a queue has two channels");
}

#[test]
fn the_limit_of_time_outs_can_be_set() {
    for (limit_ms, flags, wanted, dumps) in [(500, 0, 6, true), (0, 1, 1, false)] {
        let bench = Bench::new(failing(&NO_PREEMPTION));
        let mut queue = bench.start_endless();
        set_switch_limit(&bench.orin, limit_ms, flags);
        bench.run_another(TIMEOUT).unwrap();
        let Err(Error::Fault(fault)) = queue.wait(TIMEOUT) else { panic!("the kernel went on") };
        assert_eq!(fault.kind, FaultKind::Other(ErrorCode::IdleTimeout));
        let log = bench.log();
        assert_eq!(log.matches("Host pfifo ctxsw timeout error").count(), wanted, "{log}");
        assert!(log.contains(&format!("awaiting ack ms={}00", wanted)), "{log}");
        assert_eq!(log.contains("Channel Status"), dumps, "{log}");
    }
}

/// CTA mode: a kernel of one endless block is as bad as without preemption, one of many short blocks is not.
#[test]
fn with_block_preemption_kernels_yield_between_blocks() {
    let bench = Bench::new(failing(&NO_PREEMPTION[..1]));
    let mut queue = bench.device.queue().unwrap();
    assert_eq!(queue.preemption(), Some(Preemption::Block));
    let spin = bench.basics.kernel("spin").unwrap();
    let out = bench.device.alloc_zeroed::<u32>(4000 * 32).unwrap();
    unsafe { queue.launch(&spin, 4000, 32, &args![&out, 4_000_u32]) }.unwrap();
    let fence = queue.submit().unwrap();
    bench.run_another(TIMEOUT).unwrap();
    assert!(!fence.is_done(), "the other kernel ran before the end of the long one");
    fence.wait(TIMEOUT).unwrap();
    let seen = out.to_vec().unwrap();
    assert!(seen[0] != 0 && seen.chunks(32).all(|block| block == &seen[..32]));
    drop(queue);

    let bench = Bench::new(failing(&NO_PREEMPTION[..1]));
    let mut queue = bench.start_endless();
    assert_eq!(queue.preemption(), Some(Preemption::Block));
    bench.run_another(TIMEOUT).unwrap();
    assert!(matches!(queue.wait(LONGER), Err(Error::Fault(_))), "the endless block was not ended");
    assert!(bench.log().contains("awaiting ack ms=3100"), "{}", bench.log());
}

#[test]
fn dropping_a_hanging_queue_resets_it_before_its_channels_close() {
    let bench = Bench::new(failing(&NO_PREEMPTION));
    let queue = bench.start_endless();
    let start = Instant::now();
    drop(queue);
    assert!(start.elapsed() < LONGER, "took {:?}", start.elapsed());
    let log = bench.log();
    assert!(log.contains("error notifier set to 43") && !log.contains("unbind common failed"), "{log}");
    bench.run_another(TIMEOUT).unwrap();
}

#[test]
fn a_panic_resets_a_hanging_queue() {
    let bench = Bench::new(failing(&NO_PREEMPTION));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _queue = bench.start_endless();
        std::panic::resume_unwind(Box::new("a program's own panic"));
    }));
    assert!(panicked.is_err());
    assert!(bench.log().contains("error notifier set to 43"), "{}", bench.log());
    bench.run_another(TIMEOUT).unwrap();
}

/// What happened before queues were preempted and reset.
#[test]
fn closing_an_unfinished_kernel_without_a_reset_leaves_the_engine_stuck() {
    let [first, second] = NO_PREEMPTION;
    let bench = Bench::new(failing(&[first, second, (code::FORCE_RESET, 1, Errno::NODEV)]));
    let queue = bench.start_endless();
    let start = Instant::now();
    drop(queue);
    assert!(start.elapsed() >= 4 * PERIOD, "took {:?}", start.elapsed());
    let log = bench.log();
    for line in ["preempt timeout eng: 0", "unbind common failed", "unbind failed, tearing down TSG"] {
        assert!(log.contains(line), "no '{line}': {log}");
    }
    let start = Instant::now();
    let error = bench.run_another(LONGER).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "opening and dropping the queue took {:?}",
        start.elapsed()
    );
    assert!(bench.log().contains("Host pfifo ctxsw timeout error"), "{}", bench.log());
}
