//! The kernel's reaction to faults: lines in order, notifiers, syncpoints, siblings, waiters.

use core::sync::atomic::Ordering;
use core::time::Duration;

use crate::support::rules::*;
use crate::support::*;
use kernel_door::{DoorFd, DoorMapping, OpenFlags};
use nvgpu_sys::channel::{self, Fence, SubmitFlags, SubmitGpfifo};
use nvgpu_sys::paths;
use orin_sim::Config;

/// A TSG of two channels. The first one executes the given words.
struct Pair {
    chain: Chain,
    sibling: DoorFd,
    doorbell: DoorMapping,
    ring: DoorMapping,
    userd: DoorMapping,
    code: DoorMapping,
    va: u64,
    notifiers: DoorMapping,
    _buffers: [DoorFd; 2],
}

impl Pair {
    fn new(bench: &Bench) -> Self {
        let chain = bench.chain();
        let sibling = join(bench, &chain.space, &chain.tsg, 0);
        let (ring, userd) = (cpu(&chain.ring, 8192), cpu(&chain.userd, 4096));
        let buffers = [bench.buffer(4096), bench.buffer(4096)];
        let va = map(&chain.space, &buffers[0]).unwrap();
        let (code, notifiers) = (cpu(&buffers[0], 4096), cpu(&buffers[1], 4096));
        for (fd, offset) in [(&chain.channel, 0), (&sibling, 16)] {
            let mut args = channel::SetErrorNotifier { offset, mem: raw(&buffers[1]), ..Default::default() };
            channel::SET_ERROR_NOTIFIER.send(fd, &mut args).unwrap();
        }
        let doorbell = bench.doorbell();
        Self { chain, sibling, doorbell, ring, userd, code, va, notifiers, _buffers: buffers }
    }

    fn run(&self, words: &[u32]) {
        for (at, value) in words.iter().enumerate() {
            word(&self.code, 4 * at).store(*value, Ordering::Relaxed);
        }
        let words = u32::try_from(words.len()).unwrap();
        submit(&self.ring, &self.userd, &self.doorbell, self.chain.token, self.va, words);
    }

    /// Writes ring entries and rings the doorbell.
    fn entries(&self, entries: &[u64]) {
        for (at, entry) in entries.iter().enumerate() {
            word(&self.ring, 8 * at).store(*entry as u32, Ordering::Relaxed);
            word(&self.ring, 8 * at + 4).store((entry >> 32) as u32, Ordering::Relaxed);
        }
        word(&self.userd, 0x8c).store(u32::try_from(entries.len()).unwrap(), Ordering::Release);
        word(&self.doorbell, 0x90).store(self.chain.token, Ordering::SeqCst);
    }

    /// Waits for the code in a notifier.
    fn code(&self, channel: usize) -> u32 {
        let at = 16 * channel;
        wait_until("the notifier", || word(&self.notifiers, at + 12).load(Ordering::Acquire) == 0xffff_0000);
        word(&self.notifiers, at + 8).load(Ordering::Acquire)
    }

    fn is_over(&self) -> bool {
        timed_out(&self.chain.channel) && timed_out(&self.sibling)
    }
}

/// The messages before the notifiers' lines, without their variable parts.
fn heads(bench: &Bench) -> Vec<String> {
    let head = |line: String| line.split([':', '=', '(']).next().unwrap_or_default().trim().to_owned();
    let raw = bench.orin.kernel_log().into_iter().filter(|line| !line.starts_with("orin-sim:"));
    let text = raw.map(|line| line.split_once("]  ").map_or(line.clone(), |(_, text)| text.to_owned()));
    let mut warning = false;
    text.filter(|line| {
        warning |= line.starts_with("------------[");
        let kept = !warning;
        warning &= !line.starts_with("---[ end");
        kept
    })
    .map(head)
    .collect()
}

/// SEM_ADDR_LO, _HI, PAYLOAD_LO, _HI, EXECUTE: a release.
fn release(va: u64) -> [u32; 6] {
    [0x2005_0017, va as u32, (va >> 32) as u32, 1, 0, 1]
}

#[test]
fn an_mmu_fault_prints_its_group_in_order_and_ends_all_channels() {
    let bench = Bench::new();
    let pair = Pair::new(&bench);
    // The 16-bit word before the status belongs to user space.
    word(&pair.notifiers, 12).store(0x55, Ordering::Release);
    pair.run(&release(0x12_3456_0000));
    wait_until("the notifier", || word(&pair.notifiers, 12).load(Ordering::Acquire) == 0xffff_0055);
    word(&pair.notifiers, 12).store(0xffff_0000, Ordering::Release);
    assert_eq!((pair.code(0), pair.code(1)), (31, 31));
    wait_until("the end", || pair.is_over());
    // Section 10.3: the dump precedes the recovery's own lines. The owner is the test's thread, named after its path; a
    // line's head ends at the first colon.
    assert_eq!(
        heads(&bench),
        [
            "page fault error",
            "[MMU FAULT] mmu engine id",
            "[MMU FAULT] protected mode",
            "mmu fault id",
            "__ga10b__ Channel Status - chip ga10b",
            "__ga10b__ 510-ga10b, TSG",
            "__ga10b__ 511-ga10b, TSG",
            "__ga10b__ PBDMA Status - chip ga10b",
            "TSG 0 generated a mmu fault",
            "error notifier set to 31 for ch 511 owned by rules_recovery",
            "error notifier set to 31 for ch 510 owned by rules_recovery",
        ]
    );
    // A second error does not overwrite the first one's record.
    channel::FORCE_RESET.send(&pair.sibling, 0).unwrap();
    assert_eq!((pair.code(0), pair.code(1)), (31, 31));
}

#[test]
fn a_bad_header_is_an_error_of_the_host_engine() {
    let bench = Bench::new();
    let pair = Pair::new(&bench);
    // Header mode 6 is reserved.
    pair.run(&[0xc000_0000]);
    assert_eq!((pair.code(0), pair.code(1)), (32, 32));
    let heads = heads(&bench);
    assert_eq!(heads[..2], ["PBDMA intr PBENTRY invld Error", "pbdma_intr_0"], "{heads:#?}");
    assert!(heads[2..].iter().all(|line| line.starts_with("error notifier set to 32")), "{heads:#?}");
    assert!(messages(&bench)[1].starts_with("pbdma_intr_0(0):0x00040000 PBH: c0000000 "));
}

#[test]
fn a_wrong_segment_checksum_has_its_own_notifier_code() {
    let bench = Bench::new();
    let pair = Pair::new(&bench);
    word(&pair.code, 0).store(0, Ordering::Relaxed);
    // A segment of one zero word, whose checksum is zero, and PB_CRC of 1.
    pair.entries(&[pair.va | 1 << 42, 3 << 32 | 1]);
    assert_eq!((pair.code(0), pair.code(1)), (80, 80));
    let messages = messages(&bench);
    assert_eq!(messages[0], "PBDMA intr PBCRC mismatch Error", "{messages:#?}");
    assert!(messages[1].starts_with("pbdma_intr_0(0):0x00080000 "), "{messages:#?}");
}

#[test]
fn deadlocked_channels_are_logged_and_continue_later() {
    let bench = Bench::with(Config { deadlock_after: Duration::from_millis(5), ..Config::default() });
    let pair = Pair::new(&bench);
    let semaphore = pair.va + 0x800;
    // An acquire of 5, followed by a release of 1.
    let [header, low, high, _, _, _] = release(semaphore);
    let [_, low_done, ..] = release(semaphore + 0x10);
    pair.run(&[header, low, high, 5, 0, 0, header, low_done, high, 1, 0, 1]);
    let line = format!("deadlock unless the CPU helps: channel 511 waits for ACQUIRE 0x5 at {semaphore:#x}");
    let reports = || bench.orin.kernel_log().into_iter().filter(|text| text.contains(&line)).count();
    wait_until("the line", || reports() > 0);
    assert!(!pair.is_over(), "a board waits forever");
    word(&pair.code, 0x800).store(5, Ordering::Release);
    wait_until("the release", || word(&pair.code, 0x810).load(Ordering::Acquire) == 1);
    assert_eq!(reports(), 1);
}

#[test]
fn the_reason_decides_which_unit_reports_a_method() {
    // SET_OBJECT is method 0; headers name subchannel (15:13) and method (11:0, in words).
    let cases: [(&str, &[u32], u32, &[&str]); 5] = [
        (
            "9.2: an illegal class",
            &[0x2001_2000, 0x1234],
            13,
            &["invalid class 0x00001234, offset 0x00000000"],
        ),
        (
            "9.2: an illegal method",
            &[0x2001_2000, 0xc7c0, 0x2001_204b, 7],
            25,
            &["invalid method class 0x0000c7c0, offset 0x0000012c address 0x0001012c", "illegal method"],
        ),
        (
            "9.2: bad data of a method, a refused launch",
            &[0x2001_2000, 0xc7c0, 0x2001_206c, 0x11],
            13,
            &["class error 0x00000001, offset 0x000001b0,sub", "trapped data low 0x00000011", "class error"],
        ),
        (
            "9.2: an undefined method of the host engine",
            &[0x2001_0003, 0],
            32,
            &["PBDMA intr METHOD invld Error", "pbdma_intr_0(0):0x00200000 "],
        ),
        (
            "9.2: a software method",
            &[0x2001_a040, 1],
            32,
            &["PBDMA intr DEVICE sw method Error", "pbdma_intr_0(0):0x00800000 "],
        ),
    ];
    for (rule, words, code, lines) in cases {
        let bench = Bench::new();
        let pair = Pair::new(&bench);
        pair.run(words);
        assert_eq!((pair.code(0), pair.code(1)), (code, code), "{rule}: {:#?}", messages(&bench));
        wait_until("the end", || pair.is_over());
        let messages = messages(&bench);
        assert_eq!(messages.len(), lines.len() + 2, "{rule}: {messages:#?}");
        for (message, line) in messages.iter().zip(lines) {
            assert!(message.starts_with(line), "{rule}: {messages:#?}");
        }
    }
}

#[test]
fn some_errors_of_the_host_engine_are_only_printed() {
    type Spoil = fn(&Pair);
    let spoils: [(&str, &str, Spoil); 5] = [
        ("PBDMA intr GPPTR invalid Error", "0x00004000", |pair| {
            word(&pair.userd, 0x8c).store(4096, Ordering::Release);
            word(&pair.doorbell, 0x90).store(pair.chain.token, Ordering::SeqCst);
        }),
        ("PBDMA intr GPENTRY invalid Error", "0x00008000", |pair| {
            // The control entry ILLEGAL.
            pair.entries(&[1 << 32]);
        }),
        ("PBDMA intr GPCRC mismatch Error", "0x00010000", |pair| pair.entries(&[2 << 32 | 1])),
        ("PBDMA intr PBSEG badsplit Error", "0x40000000", |pair| {
            // A header that needs one more word, and a conditional segment.
            word(&pair.code, 0).store(0x2001_0017, Ordering::Relaxed);
            pair.entries(&[pair.va | 1 << 42, pair.va | 1 << 42 | 1]);
        }),
        // A release to an address that is not a multiple of its size.
        ("PBDMA intr SEMAPHORE invlid Error", "0x02000000", |pair| pair.run(&release(pair.va + 0x802))),
    ];
    for (line, bits, spoil) in spoils {
        let bench = Bench::new();
        let pair = Pair::new(&bench);
        spoil(&pair);
        wait_until(line, || !messages(&bench).is_empty());
        wait_until("the second line", || messages(&bench).len() == 2);
        let messages = messages(&bench);
        assert_eq!(messages[0], line);
        assert!(messages[1].starts_with(&format!("pbdma_intr_0(0):{bits} ")), "{messages:#?}");
        // Section 9.2: neither notifier nor recovery.
        std::thread::sleep(Duration::from_millis(20));
        assert!(!timed_out(&pair.chain.channel) && !timed_out(&pair.sibling), "{line}");
        assert_eq!(word(&pair.notifiers, 12).load(Ordering::Acquire), 0);
    }
}

#[test]
fn a_copy_error_logs_the_raw_value() {
    let bench = Bench::new();
    let pair = Pair::new(&bench);
    object(&pair.chain.channel, 0xc7b5).unwrap();
    // SET_OBJECT on subchannel 4, then LAUNCH_DMA with a transfer type that does not exist.
    pair.run(&[0x2001_8000, 0xc7b5, 0x2001_80c0, 3]);
    assert_eq!((pair.code(0), pair.code(1)), (11, 11));
    let messages = messages(&bench);
    assert_eq!(messages[0], "ce launch error interrupt", "{messages:#?}");
    let passed = "nvgpu_error_notifier_to_channel_notifier: invalid error_notifier requested 11";
    assert_eq!(messages[1], passed, "{messages:#?}");
}

#[test]
fn methods_of_the_copy_engine_are_refused_by_the_host_engine() {
    // The host engine decodes them: section 9.2, `pbdma_intr_1`.
    let cases: [(&str, &[u32], u32); 5] = [
        ("an undefined method", &[0x2001_8041, 0], 1 << 3),
        ("a class of another engine", &[0x2001_8000, 0xc7c0], 1 << 4),
        ("physical memory", &[0x2001_80c0, 0x1182], 1 << 2),
        ("a render operation that does not exist", &[0x2001_8097, 5], 1),
        ("what the model lacks", &[0x2001_8097, 2], 1 << 3),
    ];
    for (what, words, bit) in cases {
        let bench = Bench::new();
        let pair = Pair::new(&bench);
        object(&pair.chain.channel, 0xc7b5).unwrap();
        pair.run(words);
        assert_eq!((pair.code(0), pair.code(1)), (32, 32), "{what}: {:#?}", messages(&bench));
        assert_eq!(messages(&bench)[0], format!("hce err: pbdma_intr_1(0):{bit:#010x}"), "{what}");
    }
}

#[test]
fn a_quiesce_marks_every_channel_and_is_requested_once() {
    let bench = Bench::new();
    let pair = Pair::new(&bench);
    let waiting = |fd: &DoorFd| {
        let mut args = channel::Wait {
            kind: channel::WAIT_SEMAPHORE,
            timeout: 20_000,
            dmabuf_fd: raw(&pair._buffers[0]),
            payload: 0xffff_ffff,
            ..Default::default()
        };
        channel::WAIT.send(fd, &mut args)
    };
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| waiting(&pair.sibling));
        std::thread::sleep(Duration::from_millis(20));
        bench.orin.quiesce();
        assert_eq!(wait.join().unwrap(), Ok(0), "section 15: a wait that the end cuts short succeeds");
    });
    assert_eq!((pair.code(0), pair.code(1)), (8, 8));
    assert!(pair.is_over());
    bench.orin.quiesce();
    let messages = messages(&bench);
    assert!(messages[0].ends_with("SW quiesce requested") && messages[1] == "SW quiesce thread running");
    assert!(messages.last().unwrap().ends_with("SW quiesce already pending"), "{messages:#?}");
    assert_eq!(messages.len(), 5, "{messages:#?}");
}

/// A channel with a kernel-mode ring, with the watchdog set to `before` at its creation and to `after` afterwards.
fn watched(bench: &Bench, before: (u32, u32), after: (u32, u32)) -> (DoorFd, DoorFd, DoorFd) {
    let space = bench.try_alloc_as(LOGGED_START, 0xff_0000_0000).unwrap();
    let (tsg, channel) = (bench.tsg(), bench.channel());
    bind_space(&space, &channel).unwrap();
    bind_tsg(&tsg, &channel, 0).unwrap();
    let set = |(wdt_status, timeout_ms)| {
        channel::WDT.send(&channel, &mut channel::Wdt { wdt_status, timeout_ms }).unwrap();
    };
    set(before);
    let mut args = channel::SetupBind { num_gpfifo_entries: 16, ..Default::default() };
    channel::SETUP_BIND.send(&channel, &mut args).unwrap();
    set(after);
    (space, tsg, channel)
}

fn job(fd: &DoorFd, flags: SubmitFlags, fence: Fence) -> Answer {
    let mut args = SubmitGpfifo { gpfifo: 0, num_entries: 0, flags: flags.bits(), fence };
    // SAFETY: no entries are given.
    unsafe { channel::SUBMIT_GPFIFO.send_pointing(fd, &mut args) }
}

const ON: u32 = channel::WDT_ENABLE | channel::WDT_SET_TIMEOUT;
/// A syncpoint value that is never reached.
const NEVER: Fence = Fence { id: 900, value: 5 };

#[test]
fn the_watchdog_ends_a_job_without_progress() {
    let bench = Bench::new();
    let (_space, _tsg, channel) = watched(&bench, (ON, 5), (ON | channel::WDT_DISABLE_DUMP, 5));
    channel::DISABLE.send(&channel, 0).unwrap();
    job(&channel, SubmitFlags::empty(), Fence::default()).unwrap();
    wait_until("the watchdog", || timed_out(&channel));
    assert_eq!(bench.orin.kernel_log().iter().filter(|line| line.contains("__ga10b__")).count(), 0);
    assert_eq!(messages(&bench), ["Job on channel 511 timed out"]);
    assert_eq!(job(&channel, SubmitFlags::empty(), Fence::default()), TIMEDOUT);
}

#[test]
fn an_acquire_times_out_before_the_watchdog() {
    let bench = Bench::new();
    let (_space, _tsg, channel) = watched(&bench, (ON, 5), (ON, 1 << 30));
    let buffer = bench.buffer(4096);
    let mut args = channel::SetErrorNotifier { mem: raw(&buffer), ..Default::default() };
    channel::SET_ERROR_NOTIFIER.send(&channel, &mut args).unwrap();
    job(&channel, SubmitFlags::FENCE_WAIT, NEVER).unwrap();
    wait_until("the time limit", || timed_out(&channel));
    assert_eq!(word(&cpu(&buffer, 4096), 8).load(Ordering::Acquire), 24);
    let messages = messages(&bench);
    assert_eq!(messages[0], "PBDMA intr ACQUIRE timeout Error", "{messages:#?}");
    assert_eq!(messages[2], "semaphore acquire timeout!", "{messages:#?}");
}

#[test]
fn a_watchdog_that_is_switched_on_after_the_setup_watches_later_jobs() {
    let bench = Bench::new();
    let (_space, _tsg, channel) = watched(&bench, (channel::WDT_DISABLE, 0), (ON, 5));
    channel::DISABLE.send(&channel, 0).unwrap();
    job(&channel, SubmitFlags::empty(), Fence::default()).unwrap();
    wait_until("the watchdog", || timed_out(&channel));
    assert_eq!(messages(&bench)[0], "Job on channel 511 timed out");
}

#[test]
fn the_watchdog_is_as_it_was_when_the_job_was_submitted() {
    let set = |channel: &DoorFd, wdt_status, timeout_ms| {
        channel::WDT.send(channel, &mut channel::Wdt { wdt_status, timeout_ms }).unwrap();
    };
    // Switched off, or given a longer limit, after the job: it still expires.
    for later in [(channel::WDT_DISABLE, 0), (ON, 1 << 30)] {
        let bench = Bench::new();
        let (_space, _tsg, channel) = watched(&bench, (ON, 5), (ON, 5));
        channel::DISABLE.send(&channel, 0).unwrap();
        job(&channel, SubmitFlags::empty(), Fence::default()).unwrap();
        set(&channel, later.0, later.1);
        wait_until("the watchdog", || timed_out(&channel));
    }
    // Switched on, or given a shorter limit, after the job: nothing expires. The second job of a busy channel starts
    // the timer that the first did not have.
    for (before, expires) in [((channel::WDT_DISABLE, 0), true), ((ON, 1 << 30), false)] {
        let bench = Bench::new();
        let (_space, _tsg, channel) = watched(&bench, before, before);
        let (_other_space, _other_tsg, other) = watched(&bench, (ON, 5), (ON, 5));
        for channel in [&channel, &other] {
            channel::DISABLE.send(channel, 0).unwrap();
        }
        job(&channel, SubmitFlags::empty(), Fence::default()).unwrap();
        set(&channel, ON, 5);
        job(&other, SubmitFlags::empty(), Fence::default()).unwrap();
        wait_until("the other channel", || timed_out(&other));
        assert!(!timed_out(&channel));
        job(&channel, SubmitFlags::empty(), Fence::default()).unwrap();
        if expires {
            wait_until("the watchdog", || timed_out(&channel));
        } else {
            std::thread::sleep(Duration::from_millis(250));
            assert!(!timed_out(&channel), "the timer of the first job still runs");
        }
    }
}

#[test]
fn without_a_watchdog_an_acquire_waits_forever() {
    let bench = Bench::new();
    let (_space, _tsg, channel) = watched(&bench, (channel::WDT_DISABLE, 0), (channel::WDT_DISABLE, 0));
    let (_other_space, _other_tsg, other) = watched(&bench, (ON, 5), (ON, 5));
    job(&channel, SubmitFlags::FENCE_WAIT, NEVER).unwrap();
    job(&other, SubmitFlags::FENCE_WAIT, NEVER).unwrap();
    // The time-out of the other channel shows that the watchdog is running.
    wait_until("the other channel", || timed_out(&other));
    assert!(!timed_out(&channel));
    assert_eq!(Config::default().fence_timeout, Duration::from_secs(30), "a sync-file is another matter");
}

#[test]
fn records_carry_the_time_since_boot_in_order() {
    let bench = Bench::new();
    let now = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
    };
    let begun = now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let channel = bench.channel();
                for _ in 0..50 {
                    assert_eq!(object(&channel, 1), INVAL);
                }
            });
        }
    });
    let fd = DoorFd::open(&bench.door, paths::KMSG, OpenFlags::NON_BLOCKING).unwrap();
    let (mut last, mut sequence, mut buffer) = (begun, 0, [0; 1024]);
    while let Ok(len) = fd.read(&mut buffer) {
        let record = std::str::from_utf8(&buffer[..len]).unwrap();
        let fields: Vec<u64> = record.split(',').take(3).map(|field| field.parse().unwrap()).collect();
        assert_eq!(fields[..2], [3, sequence], "{record}");
        assert!(fields[2] >= last, "{record}");
        (last, sequence) = (fields[2], sequence + 1);
    }
    assert_eq!(sequence, 200);
    assert!(last <= now());
}
