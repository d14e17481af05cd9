//! Host's handling of ring entries and pushbuffer words: levels, checksums, split segments, header modes, and memory
//! operations.

use std::time::Duration;

use ampere_cmd::gpfifo::{Entry, Level, Operation, Segment, userd};
use ampere_cmd::{Method, Subchannel, host_c76f};
use orin_sim::gpu::{Activity, ChannelFault, GpuConfig, HostCheck};

use crate::rig::{Rig, Ring, SEMAPHORES, release};

/// Words that release `value` at `offset`.
fn releasing(offset: u64, value: u32) -> Vec<u32> {
    let mut encoder = ampere_cmd::Encoder::new(Vec::new());
    encoder.semaphore_release(&release(SEMAPHORES + offset, value)).unwrap();
    encoder.into_sink()
}

fn segment(ring: &mut Ring<'_>, words: &[u32]) -> Segment {
    Segment::new(ring.place(words), words.len() as u32)
}

fn control(operation: Operation) -> u64 {
    Entry::Control { operation, sync: false }.encode().unwrap()
}

/// The CRC-32 polynomial of IEEE 802.3 over the bytes of words, bit by bit, from zero and not inverted.
fn crc(words: &[u32]) -> u32 {
    let mut crc = 0_u32;
    for bit in words.iter().flat_map(|word| (0..32).map(move |bit| word >> bit & 1)) {
        let out = (crc ^ bit) & 1;
        crc >>= 1;
        // x^32 + x^26 + x^23 + x^22 + x^16 + x^12 + x^11 + x^10 + x^8 + x^7 + x^5 + x^4 + x^2 + x + 1, where
        // the lowest bit of the register is x^31.
        for power in [26, 23, 22, 16, 12, 11, 10, 8, 7, 5, 4, 2, 1, 0] {
            crc ^= out << (31 - power);
        }
    }
    crc
}

#[test]
fn host_reads_the_end_of_a_segment_after_its_work_is_done() {
    let rig = Rig::with(GpuConfig { slow_fetch: Duration::from_millis(50), ..GpuConfig::default() });
    let mut ring = rig.channel(7, 16);
    // The second line has no methods yet.
    let mut words = releasing(0, 1);
    words.resize(64, 0);
    let first = segment(&mut ring, &words);
    ring.entry(Entry::from(first).encode().unwrap());
    ring.ring_doorbell();
    rig.wait_for(0, 1);
    // The CPU has seen the release and uses the memory again.
    let next: Vec<u8> = releasing(4, 2).iter().flat_map(|word| word.to_le_bytes()).collect();
    rig.write(first.va + 128, &next);
    rig.wait_for(4, 2);
}

#[test]
fn userd_shows_the_host_position_and_subroutines_keep_the_top_level() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 16);
    let pointer = |ring: &Ring<'_>, low: u32, high: u32| {
        u64::from(ring.userd.load(high as usize)) << 32 | u64::from(ring.userd.load(low as usize))
    };
    let top = |ring: &Ring<'_>| pointer(ring, userd::TOP_LEVEL_GET, userd::TOP_LEVEL_GET_HI);
    let sub = segment(&mut ring, &releasing(0, 1)).with_level(Level::Subroutine);
    ring.entry(Entry::from(sub).encode().unwrap());
    ring.ring_doorbell();
    // The status query waits for the end of the slice, by which USERD has been written.
    rig.wait_for(0, 1);
    rig.wait_activity(7, |activity| *activity == Activity::Idle);
    let end = sub.va + 24;
    assert_eq!(pointer(&ring, userd::GET, userd::GET_HI), end);
    assert_eq!(pointer(&ring, userd::PUT, userd::PUT_HI), end);
    assert_eq!(top(&ring), 0, "no segment of level MAIN yet, and bit 63 says so");
    let main = segment(&mut ring, &releasing(0, 2));
    ring.entry(Entry::from(main).encode().unwrap());
    ring.entry(Entry::from(sub.with_sync()).encode().unwrap());
    // A segment that waits in the middle: the last word but one is SEM_EXECUTE of an acquire.
    let mut words = releasing(0, 3);
    words.extend([0x2005_0017, SEMAPHORES as u32 + 0x10, (SEMAPHORES >> 32) as u32, 1, 0, 0]);
    words.extend(releasing(0x20, 1));
    let held = segment(&mut ring, &words).with_level(Level::Subroutine);
    ring.entry(Entry::from(held).encode().unwrap());
    ring.ring_doorbell();
    rig.wait_activity(7, |activity| matches!(activity, Activity::WaitingForSemaphore { .. }));
    assert_eq!(pointer(&ring, userd::GET, userd::GET_HI), held.va + 48);
    assert_eq!(pointer(&ring, userd::PUT, userd::PUT_HI), held.va + 72);
    assert_eq!(top(&ring), 1 << 63 | (main.va + 24), "the last one of level MAIN");
    assert_eq!(rig.gpu.status(7).unwrap().pushbuffer_get, held.va + 48);
    rig.semaphores.store(0x10, 1);
    rig.wait_for(0x20, 1);
}

#[test]
fn checksums_that_agree_pass() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 16);
    let words = releasing(0, 1);
    let first = Entry::from(segment(&mut ring, &words)).encode().unwrap();
    let nop = control(Operation::Nop(0x1234_5678));
    let halves = |entries: &[u64]| -> Vec<u32> {
        entries.iter().flat_map(|entry| [*entry as u32, (entry >> 32) as u32]).collect()
    };
    let pushbuffer = control(Operation::PbCrc(crc(&words)));
    let entries = control(Operation::GpCrc(crc(&halves(&[first, nop, pushbuffer]))));
    // A comparison resets the checksum: the next one starts from zero, and so does a second comparison of the same
    // segment.
    let again = control(Operation::PbCrc(0));
    let rest = control(Operation::GpCrc(crc(&halves(&[again]))));
    let last = Entry::from(segment(&mut ring, &releasing(0x10, 1))).encode().unwrap();
    for entry in [first, nop, pushbuffer, entries, again, rest, last] {
        ring.entry(entry);
    }
    ring.ring_doorbell();
    rig.wait_for(0x10, 1);
    assert_eq!(rig.semaphores.load(0), 1);
}

#[test]
fn wrong_checksums_and_split_segments_raise_separate_interrupts() {
    let refused = |entries: &dyn Fn(&mut Ring<'_>) -> Vec<u64>| {
        let rig = Rig::new();
        let mut ring = rig.channel(7, 16);
        for entry in entries(&mut ring) {
            ring.entry(entry);
        }
        ring.ring_doorbell();
        let (_, fault) = rig.fault();
        let ChannelFault::PushbufferEntry { check, reason, .. } = fault else { panic!("{fault}") };
        (check, reason)
    };
    let plain = |ring: &mut Ring<'_>, words: &[u32]| Entry::from(segment(ring, words)).encode().unwrap();
    let (check, reason) = refused(&|_| vec![control(Operation::GpCrc(1))]);
    assert_eq!(check, HostCheck::RingChecksum);
    assert!(reason.starts_with("GPCRC: entry 0 of the ring"), "{reason}");
    let words = releasing(0, 1);
    let (check, reason) =
        refused(&|ring| vec![plain(ring, &words), control(Operation::PbCrc(crc(&words) ^ 1))]);
    assert_eq!(check, HostCheck::SegmentChecksum);
    assert!(reason.contains(&format!("{:#010x}", crc(&words))), "{reason}");
    // After END_PB_SEGMENT the number of fetched words is undefined.
    let early = [words.clone(), vec![0xe000_0000]].concat();
    let (check, reason) = refused(&|ring| vec![plain(ring, &early), control(Operation::PbCrc(crc(&early)))]);
    assert_eq!(check, HostCheck::SegmentChecksum);
    assert!(reason.contains("ended early"), "{reason}");
    // A conditional segment cannot begin with data.
    let (head, tail) = words.split_at(2);
    let (check, reason) = refused(&|ring| {
        let tail = Segment { conditional: true, ..segment(ring, tail) };
        vec![plain(ring, head), Entry::from(tail).encode().unwrap()]
    });
    assert_eq!(check, HostCheck::SplitSegment);
    assert!(reason.starts_with("PBSEG: entry 1 of the ring"), "{reason}");
}

#[test]
fn every_header_mode_writes_its_methods() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 16);
    let (low, high) = (SEMAPHORES as u32, (SEMAPHORES >> 32) as u32);
    #[rustfmt::skip]
    let words = [
        // Incrementing: the five methods of a semaphore.
        0x2005_0017, low, high, 11, 0, 1,
        // Non-incrementing: SEM_PAYLOAD_LO three times, of which the last one counts; NOP accepts any data.
        0x6003_0019, 1, 2, 12, 0x6002_0002, 0xffff_ffff, 0x1234_5678,
        0x2001_0017, low + 0x10, 0x2001_001b, 1,
        // Increment-once: SEM_ADDR_LO, then SEM_ADDR_HI twice.
        0xa003_0017, low + 0x20, 0x77, high, 0x2001_001b, 1,
        // Immediate: SEM_PAYLOAD_LO and SEM_EXECUTE in the header.
        0x800d_0019, 0x2001_0017, low + 0x30, 0x8001_001b,
        // A count of zero has no effect in any mode, and neither has the zero word.
        0x2000_0001, 0x6000_0001, 0xa000_0001, 0,
        0x2001_0017, low + 0x40, 0x8001_001b,
    ];
    ring.submit(&words);
    rig.wait_for(0x40, 13);
    let found = [0, 0x10, 0x20, 0x30].map(|offset| rig.semaphores.load(offset));
    assert_eq!(found, [11, 12, 12, 13]);
}

#[test]
fn data_may_be_in_the_next_segment_but_must_exist() {
    // The header needs one more word than its segment has: nothing happens until the next segment arrives.
    let rig = Rig::new();
    let mut ring = rig.channel(7, 16);
    let words = releasing(0, 1);
    let (head, tail) = words.split_at(5);
    ring.submit(head);
    rig.wait_activity(7, |_| ring.gp_get() == 1);
    rig.wait_activity(7, |activity| *activity == Activity::Idle);
    assert_eq!(rig.semaphores.load(0), 0);
    ring.submit(tail);
    rig.wait_for(0, 1);
}

#[test]
fn every_memory_operation_is_decoded() {
    // MEMBAR, L2 operations and the wait for reads complete immediately. The others need a privileged channel or video
    // memory, or are undefined.
    for operation in 0..32_u32 {
        let words = [0x2004_000a, 0, 0, 0, operation << 27];
        let rig = Rig::new();
        let mut ring = rig.channel(7, 16);
        ring.submit(&words);
        let reason = match operation {
            5 | 13 | 14 | 15 | 16 | 21 => {
                ring.submit(&releasing(0, 1));
                rig.wait_for(0, 1);
                continue;
            }
            9 | 10 | 22 => "privileged",
            11 => "not modelled",
            _ => "no such operation",
        };
        let (_, fault) = rig.fault();
        let ChannelFault::Method { address, reason: said, .. } = fault else { panic!("{fault}") };
        assert_eq!(address, host_c76f::MemOpD::ADDRESS);
        assert!(said.contains(reason), "{operation}: {said}");
    }
    // Only MEMBAR_TYPE 0 and 1 are defined.
    for (kind, refused) in [(0, false), (1, false), (2, true), (7, true)] {
        let rig = Rig::new();
        let mut ring = rig.channel(7, 16);
        ring.submit(&[0x2004_000a, 0, 0, kind, 5 << 27]);
        if refused {
            assert!(rig.fault().1.to_string().contains("MEMBAR_TYPE"));
        } else {
            ring.submit(&releasing(0, 1));
            rig.wait_for(0, 1);
        }
    }
}

#[test]
fn set_reference_waits_for_the_engines() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 16);
    // Longer than a slice, so that host reaches the method long before the end.
    let bytes = 8 << 20;
    rig.map(0x30_0000_0000, 2 * bytes);
    rig.write(0x30_0000_0000 + bytes as u64 - 1, &[9]);
    ring.commands(|encoder| {
        let copy = ampere_cmd::command::LinearCopy {
            source: 0x30_0000_0000,
            destination: 0x30_0000_0000 + bytes as u64,
            bytes: bytes as u64,
        };
        encoder.linear_copy(&copy).unwrap();
        encoder.method(Subchannel::HOST, &host_c76f::SetReference { count: 77 }).unwrap();
    });
    rig.wait_activity(7, |_| ring.userd.load(userd::REFERENCE as usize) == 77);
    assert_eq!(rig.read(0x30_0000_0000 + 2 * bytes as u64 - 1, 1), [9]);
}
