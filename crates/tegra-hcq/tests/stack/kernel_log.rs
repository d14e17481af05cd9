//! The checker for a board's kernel log, applied to the software Orin's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu_log::{Class, Event, Kind, Record, Role, check};
use kernel_door::Door;
use nvgpu_channel::{KmsgReader, open_kernel_log};
use orin_sim::check::{self, Tools};
use orin_sim::{Config, SoftwareOrin};
use tegra_hcq::{Arg, Buffer, Program, args};
use test_support::{Bench, TIMEOUT, cubin, try_open};

/// Builds a kernel's arguments from a buffer of 64 words.
type Arguments = fn(&Buffer<u32>) -> Vec<Arg<'_>>;

/// Log events of one faulting launch.
fn events_of(kernel: &str, threads: u32, arguments: Arguments) -> Vec<Event> {
    let mut bench = Bench::new("faults");
    let out = bench.device.alloc_zeroed::<u32>(64).unwrap();
    let door: Arc<dyn Door> = Arc::new(bench.orin.clone());
    let mut log = KmsgReader::open_at_end(&door).unwrap();
    unsafe { bench.try_run(kernel, 1, threads, &arguments(&out)) }.unwrap_err();
    let mut records = Vec::new();
    // The notifier of the second channel may appear after the launch has failed.
    let end = Instant::now() + Duration::from_secs(20);
    let notifier = |record: &Record| record.text.contains("error notifier set");
    while records.iter().filter(|record| notifier(record)).count() < 2 && Instant::now() < end {
        log.wait(Duration::from_millis(50)).unwrap();
        records.extend(log.read_new().unwrap());
    }
    check(records)
}

/// The patterns of an event's rows, without duplicates.
fn patterns(event: &Event) -> Vec<&'static str> {
    let mut patterns: Vec<_> = event.lines.iter().map(|line| line.row.pattern).collect();
    patterns.dedup();
    patterns
}

#[test]
fn an_mmu_fault_of_the_model_finds_its_rows() {
    let events = events_of("fault_read", 1, |out| args![0x12_3456_7000_u64, out].to_vec());
    assert_eq!(events.len(), 1, "{events:#?}");
    let event = &events[0];
    assert_eq!(event.kinds().into_iter().collect::<Vec<_>>(), [Kind::Mmu]);
    assert_eq!(event.class(), Class::Error);
    assert_eq!(
        patterns(event),
        [
            "page fault error: err_type",
            "[MMU FAULT] mmu engine id*fault addr:",
            "[MMU FAULT] protected mode",
            "mmu fault id=*id_type=",
            "__ga10b__ Channel Status",
            "__ga10b__*thread name",
            "__ga10b__ PBDMA Status",
            "generated a mmu fault",
            "sm err state*hww_warp_esr 32,",
            "sm hww global*warp 0x00000020",
            "orin-sim: channel ",
            "error notifier set to",
        ]
    );
    let address = event.lines.iter().find(|line| line.row.pattern.starts_with("[MMU FAULT] mmu")).unwrap();
    assert!(address.record.text.contains("fault addr: 0x1234567000"), "{}", address.record.text);
    assert_eq!(event.lines.last().unwrap().row.role, Role::End);
    // The line names the mapping next to the address.
    let explained = event.lines.iter().any(|line| {
        let text = &line.record.text;
        text.starts_with("orin-sim: channel ") && text.contains(" bytes before nvmap buffer of tag 0x")
            || text.contains(" bytes past the end of nvmap buffer of tag 0x")
    });
    assert!(explained, "{:#?}", event.lines);
}

#[test]
fn every_fault_of_the_model_has_its_kind() {
    let cases: [(&str, u32, Arguments, Kind); 4] = [
        ("fault_write", 1, |_| args![0x77_0000_0000_u64, 1_u32].to_vec(), Kind::Mmu),
        ("fault_trap", 64, |out| args![33_u32, out].to_vec(), Kind::Sm),
        ("fault_shared_bounds", 1, |out| args![1_u32 << 20, out].to_vec(), Kind::Sm),
        ("fault_barrier", 64, |out| args![out].to_vec(), Kind::Hang),
    ];
    for (kernel, threads, arguments, kind) in cases {
        let events = events_of(kernel, threads, arguments);
        assert_eq!(events.len(), 1, "{kernel}: {events:#?}");
        assert_eq!(events[0].kinds().into_iter().collect::<Vec<_>>(), [kind], "{kernel}");
        let unknown = events[0].lines.iter().find(|line| line.row.kind == Kind::Unknown);
        assert!(unknown.is_none(), "{kernel}: {unknown:?}");
    }
}

/// A finding of the order check is an error in the log; correct use produces neither.
#[test]
fn findings_of_the_order_check_are_errors() {
    let (orin, device) = try_open(test_support::config().with_checks(Tools::ORDERING));
    let device = device.unwrap();
    let program = Program::load(&device, &cubin("basics")).unwrap();
    let kernel = program.kernel("increment").unwrap();
    let mut queue = device.queue().unwrap();
    let mut run = |data: &Buffer<u32>| {
        for _ in 0..2 {
            unsafe { queue.launch(&kernel, 1, 32, &args![data, 32_u32]) }.unwrap();
        }
        queue.wait(TIMEOUT).unwrap();
    };
    let door: Arc<dyn Door> = Arc::new(orin.clone());
    let mut log = KmsgReader::open_at_end(&door).unwrap();
    let written = device.alloc_zeroed::<u32>(32).unwrap();
    run(&written);
    let checker = orin.checker().unwrap();
    assert_eq!(checker.findings(), []);
    assert!(check(log.read_new().unwrap()).is_empty());
    let fresh = device.alloc::<u32>(4096).unwrap();
    run(&fresh);
    let findings = checker.findings();
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    let access = finding.access.as_ref().unwrap();
    assert_eq!((finding.kind, access.address), (check::Kind::Unwritten, fresh.gpu_va()));
    assert!(access.space.starts_with("nvmap buffer of tag 0x"), "{finding}");
    let events = check(log.read_new().unwrap());
    assert_eq!((events.len(), events[0].class()), (1, Class::Error));
    assert_eq!(events[0].kinds().into_iter().collect::<Vec<_>>(), [Kind::Strict]);
    assert!(events[0].lines[0].record.text.ends_with(&finding.message));
}

/// The driver's own reader returns plain texts, which are judged in the same way.
#[test]
fn lines_of_the_driver_s_reader_are_judged() {
    let bench = Bench::new("faults");
    let door: Arc<dyn Door> = Arc::new(bench.orin.clone());
    let mut log = open_kernel_log(&door);
    bench.orin.quiesce();
    let events = check(log.drain().iter().map(|text| Record::from_text(text)));
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(events[0].row().kind, Kind::Fatal);
    assert!(events[0].cures().contains(&"Reboot; the first error above is the cause."));
}

/// The model's messages during bring-up, work and shutdown are not errors.
#[test]
fn a_program_without_faults_leaves_no_error_in_the_log() {
    let mut bench = Bench::new("basics");
    let out = bench.device.alloc::<u32>(64).unwrap();
    unsafe { bench.run("fill_u32", 1, 64, &args![&out, 7_u32, 64_u32]) };
    assert_eq!(out.to_vec().unwrap(), [7; 64]);
    let orin = bench.orin.clone();
    drop((out, bench));
    let events = check(orin.kernel_log().iter().map(|text| Record::from_text(text)));
    assert!(events.iter().all(|event| event.class() < Class::Warning), "{events:#?}");
}

#[test]
fn a_reader_sees_each_record_once_and_reports_missing_permission() {
    let orin = SoftwareOrin::new(test_support::config()).unwrap();
    let door: Arc<dyn Door> = Arc::new(orin.clone());
    let mut reader = KmsgReader::open(&door).unwrap();
    orin.quiesce();
    let records = reader.read_new().unwrap();
    assert!(!records.is_empty() && reader.read_new().unwrap().is_empty());
    assert!(records.iter().all(|record| record.sequence.is_some() && record.level.is_some()));
    assert_eq!(reader.times_overtaken(), 0);
    let nodes = orin_sim::Nodes { kernel_log: orin_sim::Node::Denied, ..orin_sim::Nodes::default() };
    let denied = SoftwareOrin::new(Config { nodes, ..test_support::config() }).unwrap();
    let door: Arc<dyn Door> = Arc::new(denied);
    assert!(matches!(KmsgReader::open(&door), Err(kernel_door::Errno::ACCESS | kernel_door::Errno::PERM)));
}
