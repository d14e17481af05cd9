//! The kernel log through `/dev/kmsg`, and the sysfs files.

use std::time::Duration;

use crate::support::*;
use kernel_door::{DoorFd, Errno, Events, OpenFlags};
use nvgpu_sys::{nvmap, paths};

/// Makes nvmap print its missing-tag warning.
fn provoke(bench: &Bench) {
    let handle = bench.create(4096);
    bench.try_alloc(handle, nvmap::Heaps::IOVMM.bits(), 1).unwrap();
}

/// Makes nvgpu print an error line.
fn provoke_nvgpu(bench: &Bench) {
    assert_eq!(object(&bench.channel(), 0xc7c0), Err(Errno::INVAL));
}

fn kmsg(bench: &Bench) -> DoorFd {
    DoorFd::open(&bench.door, paths::KMSG, OpenFlags::NON_BLOCKING).unwrap()
}

fn read(fd: &DoorFd) -> Result<String, Errno> {
    let mut buffer = [0; 1024];
    let len = fd.read(&mut buffer)?;
    Ok(String::from_utf8(buffer[..len].to_vec()).unwrap())
}

#[test]
fn each_read_is_one_record_in_the_kernels_format() {
    let bench = Bench::new();
    provoke(&bench);
    provoke_nvgpu(&bench);
    let fd = kmsg(&bench);
    for (level, text) in ["4", "3"].iter().zip(bench.orin.kernel_log()) {
        let record = read(&fd).unwrap();
        let (head, body) = record.split_once(';').unwrap();
        let fields: Vec<&str> = head.split(',').collect();
        assert_eq!(fields[0], *level, "{record}");
        assert!(fields[1].parse::<u64>().is_ok() && fields[2].parse::<u64>().is_ok(), "{record}");
        assert_eq!(fields[3..], ["-"], "{record}");
        assert_eq!(body.strip_suffix('\n'), Some(text.as_str()));
    }
    assert_eq!(read(&fd), Err(Errno::AGAIN));
    assert_eq!(fd.read(&mut [0; 4]), Err(Errno::AGAIN));
}

#[test]
fn the_lines_are_those_of_the_drivers() {
    let bench = Bench::new();
    provoke(&bench);
    provoke(&bench);
    provoke_nvgpu(&bench);
    let log = bench.orin.kernel_log();
    assert_eq!(log.len(), 2, "the tag is missed once per process: {log:#?}");
    assert!(log[0].starts_with("nvmap_alloc_handle: PID "), "{}", log[0]);
    assert!(log[0].contains("WARNING: All NvMap Allocations must have a tag"), "{}", log[0]);
    assert!(log[1].starts_with("nvgpu: 17000000.gpu "), "{}", log[1]);
    assert!(log[1].ends_with(" [ERR]  not bound to address space at time of grctx allocation"), "{}", log[1]);
}

#[test]
fn seeking_to_the_end_skips_earlier_records() {
    let bench = Bench::new();
    provoke(&bench);
    let fd = kmsg(&bench);
    fd.seek_end().unwrap();
    assert_eq!(read(&fd), Err(Errno::AGAIN));
    provoke_nvgpu(&bench);
    assert!(read(&fd).unwrap().contains("not bound"));
    assert_eq!(bench.ctrl.seek_end(), Err(Errno::SPIPE));
}

#[test]
fn polling_waits_for_a_record() {
    let bench = Bench::new();
    let fd = kmsg(&bench);
    assert_eq!(fd.poll(Events::IN, Duration::from_millis(5)), Ok(Events::empty()));
    std::thread::scope(|scope| {
        scope.spawn(|| provoke(&bench));
        assert_eq!(fd.poll(Events::IN, Duration::from_secs(10)), Ok(Events::IN));
    });
    let closed = adopt(&bench.door, 0x7fff_0000);
    assert_eq!(closed.poll(Events::IN, Duration::ZERO), Ok(Events::INVALID));
    assert_eq!(bench.ctrl.poll(Events::IN, Duration::ZERO), Ok(Events::IN));
}

#[test]
fn a_blocking_read_gets_the_next_record_or_ends() {
    let bench = Bench::new();
    let fd = DoorFd::open(&bench.door, paths::KMSG, OpenFlags::empty()).unwrap();
    assert_eq!(read(&fd), Err(Errno::INTR));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            provoke(&bench);
        });
        assert!(read(&fd).unwrap().contains("must have a tag"));
    });
}

#[test]
fn frequencies_can_be_read_and_not_set() {
    let bench = Bench::new();
    let text = |path| {
        let fd = DoorFd::open(&bench.door, path, OpenFlags::empty()).unwrap();
        let text = read(&fd).unwrap();
        assert_eq!(read(&fd).unwrap(), "", "the end");
        text
    };
    assert_eq!(text(paths::DEVFREQ_MAX_FREQ), "1300000000\n");
    assert_eq!(text(paths::DEVFREQ_CUR_FREQ), "1300000000\n");
    assert_eq!(bench.door.open(paths::DEVFREQ_MIN_FREQ, FLAGS), Err(Errno::ACCESS));
}
