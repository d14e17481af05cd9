//! Two devices in one process: what one does never disturbs the other.

use std::time::Duration;

use tegra_hcq::{Device, DeviceKind, Error, FaultKind, PeerAccess, Program, args};
use test_support::{Numbers, TIMEOUT, cubin};

/// A wait that is expected to run out.
const SHORT: Duration = Duration::from_millis(20);

fn boards() -> [Device; 2] {
    [0, 1].map(|index| Device::open_nth(DeviceKind::Sim, index).unwrap())
}

#[test]
fn boards_are_numbered() {
    let [first, second] = boards();
    assert_eq!(first.info().name().to_string(), "sim");
    assert_eq!(second.info().name().to_string(), "sim:1");
    assert_eq!(Device::list(DeviceKind::Sim).unwrap(), [first.info().name(), second.info().name()]);
    assert_eq!(second.open_other().unwrap().unwrap().info().name(), first.info().name());
    for name in ["sim:16", "sim:0000:19:00.0", "nvgpu:1"] {
        let error = Device::open(name.parse::<tegra_hcq::DeviceName>().unwrap()).unwrap_err();
        assert!(matches!(&error, Error::NoSuchDevice { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn staged_copies_of_all_sizes_arrive_in_order() {
    let [first, second] = boards();
    assert_eq!(first.enable_peer(&first).unwrap().to_string(), "direct (the same GPU)");
    assert_eq!(first.enable_peer(&second).unwrap(), PeerAccess::Staged);
    let mut link = first.link(&second).unwrap();
    let (mut one, mut other) = (first.queue().unwrap(), second.queue().unwrap());
    // Copies of both directions and of other queues share the link's memory.
    let mut spare = first.queue().unwrap();
    for (round, words) in [1, 2, 1000, 1 << 20, (13 << 20) / 4 + 1].into_iter().enumerate() {
        let data = Numbers::new(round as u64).vec_u32(words);
        let source = first.alloc_from(&data).unwrap();
        let mut there = second.alloc::<u32>(words).unwrap();
        let mut back = first.alloc::<u32>(words).unwrap();
        link.copy(&mut one, &source, &mut other, &mut there).unwrap();
        let transfer = link.copy(&mut other, &there, &mut spare, &mut back).unwrap();
        transfer.wait(TIMEOUT).unwrap();
        assert!(transfer.is_done());
        assert_eq!(there.to_vec().unwrap(), data);
        assert_eq!(back.to_vec().unwrap(), data);
    }
    let (source, mut target) = (first.alloc::<u8>(0).unwrap(), second.alloc::<u8>(0).unwrap());
    link.copy(&mut one, &source, &mut other, &mut target).unwrap().wait(TIMEOUT).unwrap();
}

#[test]
fn a_link_refuses_what_is_not_at_its_ends() {
    let [first, second] = boards();
    let third = Device::open(DeviceKind::Sim).unwrap();
    let mut link = first.link(&second).unwrap();
    let (mut one, mut other) = (first.queue().unwrap(), second.queue().unwrap());
    let (mut again, mut stranger) = (first.queue().unwrap(), third.queue().unwrap());
    let source = first.alloc_zeroed::<u32>(4).unwrap();
    let (mut near, mut there) = (first.alloc::<u32>(4).unwrap(), second.alloc::<u32>(4).unwrap());
    let mut longer = second.alloc::<u32>(5).unwrap();
    let refused = |result: Result<tegra_hcq::Transfer, Error>, text: &str| {
        let error = result.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    };
    refused(link.copy(&mut stranger, &source, &mut other, &mut there), "the queue of the source belongs to");
    refused(link.copy(&mut one, &source, &mut stranger, &mut there), "the queue of the target belongs to");
    refused(link.copy(&mut one, &source, &mut again, &mut near), "neither of the queues");
    refused(link.copy(&mut other, &source, &mut one, &mut there), "the source of the copy belongs to");
    refused(link.copy(&mut one, &source, &mut other, &mut near), "the target of the copy belongs to");
    refused(link.copy(&mut one, &source, &mut other, &mut longer), "4");
    // A queue cannot use the other board's memory itself, and says what does.
    let error = one.copy(&source, &mut there).unwrap_err();
    assert!(matches!(error, Error::OtherDevice(_)), "{error}");
    let fence = other.submit().unwrap();
    assert!(matches!(one.wait_fence(&fence).unwrap_err(), Error::OtherDevice(_)));
    let signal = second.signal(0).unwrap();
    assert!(matches!(one.wait_signal(&signal, 1).unwrap_err(), Error::OtherDevice(_)));
    link.copy(&mut one, &source, &mut other, &mut there).unwrap().wait(TIMEOUT).unwrap();
}

#[test]
fn a_fault_of_one_board_ends_a_transfer_and_leaves_the_other_board_alone() {
    let [first, second] = boards();
    let mut link = first.link(&second).unwrap();
    let (mut one, mut other) = (first.queue().unwrap(), second.queue().unwrap());
    let faults = Program::load(&first, &cubin("faults")).unwrap();
    let write = faults.kernel("fault_write").unwrap();
    let (source, mut target) =
        (first.alloc_from(&[7_u32; 1000]).unwrap(), second.alloc_zeroed::<u32>(1000).unwrap());
    // SAFETY: the kernel writes one word at an address without memory, which is a fault.
    unsafe { one.launch(&write, 1, 1, &args![0x55_0000_0000_u64, 1_u32]) }.unwrap();
    let transfer = link.copy(&mut one, &source, &mut other, &mut target).unwrap();
    match transfer.wait(TIMEOUT) {
        Err(Error::Fault(fault)) => assert_eq!(fault.kind, FaultKind::Mmu),
        result => panic!("expected a fault: {result:?}"),
    }
    // The other board is released from its wait, and needs no recovery.
    transfer.written().wait(TIMEOUT).unwrap();
    assert!(second.recover().unwrap().is_empty());
    assert_eq!(first.recover().unwrap().faults.len(), 1);
    // The link and its memory serve the next copy.
    link.copy(&mut one, &source, &mut other, &mut target).unwrap().wait(TIMEOUT).unwrap();
    assert_eq!(target.to_vec().unwrap(), [7; 1000]);
}

#[test]
fn devices_with_work_in_flight_can_be_dropped_in_any_order() {
    for first_dropped in [0, 1] {
        let [first, second] = boards();
        let signal = first.shared_signal(&second, 0).unwrap();
        let mut link = first.link(&second).unwrap();
        let mut queues = [first.queue().unwrap(), second.queue().unwrap()];
        let (source, mut target) =
            (first.alloc_zeroed::<u8>(9 << 20).unwrap(), second.alloc::<u8>(9 << 20).unwrap());
        for queue in &mut queues {
            queue.wait_signal(&signal, 1).unwrap();
        }
        let [one, other] = &mut queues;
        let transfer = link.copy(one, &source, other, &mut target).unwrap();
        for fence in [transfer.read(), transfer.written()] {
            assert!(matches!(fence.wait(SHORT), Err(Error::Timeout { .. })));
        }
        let mut halves: Vec<Option<_>> = queues.into_iter().zip([first, second]).map(Some).collect();
        halves.swap(0, first_dropped);
        drop(halves[0].take());
        let (_queue, device) = halves[1].as_ref().unwrap();
        // The remaining device works on with a new queue.
        let data = device.alloc_from(&[1, 2, 3]).unwrap();
        let mut copy = device.alloc::<i32>(3).unwrap();
        let mut queue = device.queue().unwrap();
        queue.copy(&data, &mut copy).unwrap();
        queue.wait(TIMEOUT).unwrap();
        assert_eq!(copy.to_vec().unwrap(), [1, 2, 3]);
        drop((signal, source, target, link, transfer));
    }
}
