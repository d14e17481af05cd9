use proptest::prelude::*;

use super::*;

/// A line as nvgpu prints it, `ms` milliseconds after the start.
fn nvgpu(ms: u64, tag: &str, message: &str) -> String {
    format!("[{:5}.{:03}000] nvgpu: 17000000.gpu f:1 [{tag}]  {message}\n", ms / 1000, ms % 1000)
}

fn events(log: &str) -> Vec<Event> {
    check(Record::parse_log(log))
}

fn kinds(event: &Event) -> Vec<Kind> {
    event.kinds().into_iter().collect()
}

/// The lines of an MMU fault, shortened to the parts that distinguish them.
const MMU: [&str; 5] = [
    "page fault error: err_type = 0x2, fault_status = 0x200",
    "[MMU FAULT] mmu engine id:  64, ch id:  511, fault addr: 0xfb12345000, fault addr aperture: 0, fault type: \
     invalid pte, access type: virt read, ",
    "[MMU FAULT] protected mode: 0, client type: gpc, client id:  t1 0, gpc id if client type is gpc: 0, ",
    "mmu fault id=0 id_type=1 act_eng_bitmask=00000001",
    "TSG 0 generated a mmu fault",
];

#[test]
fn the_lines_of_a_fault_are_one_event() {
    let mut log: String = MMU.iter().map(|line| nvgpu(1000, "ERR", line)).collect();
    log.push_str("[    1.001000] usb 1-2: new high-speed USB device\n");
    log.push_str("[    1.001000] __ga10b__ Channel Status - chip ga10b\n");
    log.push_str(&nvgpu(1002, "ERR", "error notifier set to 31 for ch 511 owned by demo"));
    log.push_str(&nvgpu(1002, "ERR", "error notifier set to 31 for ch 510 owned by demo"));
    // The next program's fault, at once: it begins after the notifiers.
    log.push_str(&nvgpu(1003, "ERR", "sked exception: esr 0x01000000"));
    let found = events(&log);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].lines.len(), kinds(&found[0])), (8, vec![Kind::Mmu]));
    assert_eq!((found[0].class(), found[0].trace), (Class::Error, false));
    assert!(found[0].cures().iter().any(|cure| cure.contains("0xfd00000000")));
    assert_eq!(kinds(&found[1]), [Kind::LaunchDescriptor]);
}

/// Output of a board with a buffer inside the shader's shared window: the machine check is an error.
#[test]
fn an_sm_machine_check_is_an_error() {
    let log = nvgpu(5, "ERR", "sm machine check err. gpc_id(0), tpc_id(1), offset(0)")
        + &nvgpu(
            5,
            "ERR",
            "sm err state gpc_id(0), tpc_id(1), offset(0), sm_id(2), hww_global_esr 4,hww_warp_esr 16, \
             hww_warp_esr_pc 0xff55a2a830",
        )
        + &nvgpu(6, "ERR", "sm hww global 0x00000004 warp 0x00000010")
        + &nvgpu(6, "ERR", "set gr exception notifier")
        + &nvgpu(6, "ERR", "error notifier set to 13 for ch 511 owned by python3");
    let found = events(&log);
    assert_eq!((found.len(), found[0].lines.len()), (1, 5));
    assert_eq!(kinds(&found[0]), [Kind::Sm]);
    assert!(found[0].lines.iter().all(|line| line.row.class == Class::Error));
    assert!(found[0].cures().iter().any(|cure| cure.contains("0xfc00000000")));
}

#[test]
fn an_sm_that_the_mmu_refused_is_an_mmu_fault() {
    let sm = "sm err state gpc_id(0), tpc_id(0), offset(0), sm_id(0), hww_global_esr 4,hww_warp_esr 32, \
              hww_warp_esr_pc 0x4200";
    let log: String = MMU.iter().map(|line| nvgpu(0, "ERR", line)).collect();
    let found = events(&(log + &nvgpu(1, "ERR", sm) + &nvgpu(1, "ERR", "sm machine check err. x")));
    assert_eq!((found.len(), kinds(&found[0])), (1, vec![Kind::Mmu]));
}

/// The rest of what a board's logs showed: refusals, hints and signs that were taken for harmless.
#[test]
fn lines_of_a_board() {
    for (line, class, kind) in [
        (
            "nvgpu: 17000000.gpu f:1 [ERR]  sked exception: esr 0x01000000",
            Class::Error,
            Kind::LaunchDescriptor,
        ),
        ("nvgpu: 17000000.gpu f:1 [ERR]  copy engine 0 not idle while reset", Class::Error, Kind::CopyEngine),
        ("nvgpu: 17000000.gpu f:1 [ERR]  Host pfifo ctxsw timeout error", Class::Error, Kind::Hang),
        ("nvgpu: 17000000.gpu f:1 [ERR]  PBDMA intr METHOD invld Error", Class::Error, Kind::Pushbuffer),
        (
            "PID 812: python3: WARNING: All NvMap Allocations must have a tag to identify the subsystem",
            Class::Harmless,
            Kind::None,
        ),
        ("nvgpu: 17000000.gpu f:1 [WRN]  error reporting not supported", Class::Harmless, Kind::None),
        ("gpu 17000000.gpu: tpc_pg_mask_store: x", Class::Harmless, Kind::None),
        ("nvmap_ioctl: Unknown NVMAP_IOC = 0xc0104e99", Class::Error, Kind::Refused),
        (
            "nvgpu: 17000000.gpu f:1 [ERR]  error notifier set to 13 for ch 511 owned by demo",
            Class::Error,
            Kind::Notifier,
        ),
        ("NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=a, Ch 00000008, MMU Fault", Class::Error, Kind::Mmu),
    ] {
        let found = events(line);
        assert_eq!((found.len(), found[0].class()), (1, class), "{line}");
        assert_eq!(found[0].row().kind, kind, "{line}");
        let told = [kind].into_iter().filter(|kind| *kind != Kind::None);
        assert!(kinds(&found[0]).into_iter().eq(told), "{line}: alone it explains itself");
    }
}

#[test]
fn lines_of_public_reports_have_rows() {
    let lines = include_str!("posted.txt").lines();
    assert!(lines.clone().count() > 110);
    for entry in lines {
        let (class, line) = entry.split_once(' ').unwrap();
        let found = events(line);
        assert_eq!(found.len(), 1, "{line}");
        let row = found[0].row();
        assert_eq!(row.class.name(), class, "{line}: {}", row.pattern);
        assert!(table::rows().any(|known| std::ptr::eq(known, row)), "no row: {line}");
    }
}

#[test]
fn events_are_in_the_order_of_their_first_lines() {
    let log = nvgpu(100_100, "ERR", "sked exception: esr 0x01000000")
        + &nvgpu(100_500, "INFO", "railgate is disabled.")
        + &nvgpu(100_600, "ERR", "error notifier set to 13 for ch 511 owned by demo")
        + &nvgpu(103_000, "INFO", "railgate is enabled.");
    let kinds: Vec<_> = events(&log).iter().map(|event| (event.class(), event.lines.len())).collect();
    assert_eq!(kinds, [(Class::Error, 2), (Class::Information, 1), (Class::Information, 1)]);
}

#[test]
fn a_trace_is_one_event_and_says_what_it_is() {
    let trace = |function: &str, module: &str| {
        format!(
            "[    3.1] ------------[ cut here ]------------\n\
             [    3.1] WARNING: CPU: 4 PID: 9 at x.c:191 {function}+0x88/0xa0 [{module}]\n\
             [    3.1] Modules linked in: nvgpu nvmap\n\
             [    3.1] Call trace:\n\
             [    3.1]  {function}+0x88/0xa0 [{module}]\n\
             [    3.1] ---[ end trace 0000000000000000 ]---\n"
        )
    };
    let found = events(&trace("tu104_gr_init_commit_rtv_cb", "nvgpu"));
    assert_eq!((found.len(), found[0].lines.len(), found[0].trace), (1, 6, true));
    assert_eq!(found[0].class(), Class::Warning);
    assert!(found[0].row().meaning.contains("2^40"), "{}", found[0].row().meaning);
    let found = events(&trace("something_else", "nvgpu"));
    assert_eq!((found.len(), found[0].class()), (1, Class::Warning));
    assert!(found[0].row().meaning.contains("does not know the function"));
    assert!(events(&trace("usb_probe", "usbcore")).is_empty(), "another driver's");
    // A trace that never ends does not swallow the rest of the log.
    let cut = trace("f", "nvgpu").lines().take(3).map(|line| format!("{line}\n")).collect::<String>();
    let long = cut + &"x\n".repeat(TRACE_LINES) + &nvgpu(9000, "ERR", "sked exception: esr 1");
    assert_eq!(events(&long).len(), 2);
}

#[test]
fn events_far_apart_are_two() {
    let line = "Host pfifo ctxsw timeout error";
    assert_eq!(events(&(nvgpu(0, "ERR", line) + &nvgpu(100, "ERR", line))).len(), 1);
    assert_eq!(events(&(nvgpu(0, "ERR", line) + &nvgpu(5000, "ERR", line))).len(), 2);
}

#[test]
fn the_summary_counts_events() {
    let log = nvgpu(0, "ERR", "sked exception: esr 1") + &nvgpu(1, "WRN", "odd") + &nvgpu(2, "INFO", "fine");
    let mut summary = Summary::default();
    events(&log).iter().for_each(|event| summary.add(event));
    assert_eq!(Class::ALL.map(|class| summary.of(class)), [1, 0, 1, 1]);
}

proptest! {
    /// Whatever comes, each line about the GPU is in exactly one event, in order, and nothing panics.
    #[test]
    fn no_line_is_lost(
        choices in proptest::collection::vec((0_usize..400, 0_u64..3_000_000, any::<bool>()), 0..60)
    ) {
        let patterns: Vec<_> =
            table::TABLE.iter().flat_map(|(_, rows)| rows.iter()).map(|row| row.pattern).collect();
        let records: Vec<_> = choices
            .iter()
            .map(|(choice, micros, stamped)| {
                let text = match patterns.get(*choice) {
                    Some(pattern) => format!("nvgpu: {}", pattern.replace('*', " 7 ")),
                    None if choice % 3 == 0 => "------------[ cut here ]------------".to_owned(),
                    None if choice % 3 == 1 => "---[ end trace 0 ]---".to_owned(),
                    None => "another driver".to_owned(),
                };
                let stamp = if *stamped { Stamp::Uptime(*micros) } else { Stamp::None };
                Record { stamp, ..Record::from_text(&text) }
            })
            .collect();
        let about = records.iter().filter(|record| table::is_about_the_gpu(&record.text)).count();
        let found = check(records);
        let lines = found.iter().flat_map(|event| &event.lines);
        prop_assert_eq!(lines.filter(|line| table::is_about_the_gpu(&line.record.text)).count(), about);
        prop_assert!(found.iter().all(|event| !event.lines.is_empty()));
    }
}
