//! Batched mappings, and the topology of the chip.

use std::sync::Arc;

use crate::common::open;
use kernel_door::Errno;
use nvgpu_channel::{Error, GpuVa, MapOptions, Placement};
use nvgpu_sys::{address_space, ctrl};
use orin_sim::{Call, Failure};

const PAGE: u64 = 4096;

#[test]
fn a_batch_maps_in_one_request_for_256() {
    let (orin, gpu) = open();
    let before = orin.live();
    let space = gpu.address_space().unwrap();
    let buffer = Arc::new(gpu.nvmap().buffer(300 * PAGE).label("pieces").allocate().unwrap());
    let range = space.reserve(1 << 22, false).unwrap();
    // Every second page of the range, the buffer's pages backwards.
    let place = |index: u64| Placement {
        offset: 2 * index * PAGE,
        buffer: &buffer,
        buffer_offset: (299 - index) * PAGE,
        len: PAGE,
        options: MapOptions::default(),
    };
    let places: Vec<_> = (0..300).map(place).collect();
    let requests = orin.ioctl_count();
    let mappings = range.map_batch(&places).unwrap();
    assert_eq!(orin.ioctl_count(), requests + 2);
    assert_eq!((mappings.len(), orin.live().gpu_mappings), (300, 300));
    assert_eq!(mappings[299].va(), GpuVa(range.va().get() + 2 * 299 * PAGE));
    assert!(matches!(range.map_batch(&[place(0)]), Err(Error::Overlap { .. })));

    let requests = orin.ioctl_count();
    space.unmap_batch(mappings).unwrap();
    assert_eq!((orin.ioctl_count(), orin.live().gpu_mappings), (requests + 2, 0));
    // The addresses are free again.
    let mapping = range.map(0, &buffer, 0, PAGE, MapOptions::default()).unwrap();
    mapping.unmap().unwrap();
    assert_eq!(orin.live().gpu_mappings, 0);

    let elsewhere = gpu.address_space().unwrap();
    let mapping = space.map(&buffer, MapOptions::default()).unwrap();
    assert!(matches!(elsewhere.unmap_batch(vec![mapping]), Err(Error::Range { .. })));
    drop((range, space, elsewhere, buffer));
    assert_eq!(orin.live(), before);
}

#[test]
fn a_batch_is_all_or_nothing() {
    let (orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let buffer = Arc::new(gpu.nvmap().buffer(4 * PAGE).allocate().unwrap());
    let range = space.reserve(16 * PAGE, false).unwrap();
    let place = |offset, buffer_offset| Placement {
        offset,
        buffer: &buffer,
        buffer_offset,
        len: PAGE,
        options: MapOptions::default(),
    };
    // An invalid placement is rejected before any request.
    let requests = orin.ioctl_count();
    for wrong in [place(0, 4 * PAGE), place(16 * PAGE, 0), place(1, 0), place(4 * PAGE, 0)] {
        assert!(range.map_batch(&[place(4 * PAGE, 0), wrong]).is_err());
    }
    assert_eq!(orin.ioctl_count(), requests);
    // If the kernel rejects a batch, its earlier mappings are undone too.
    let code = address_space::code::MAP_BUFFER_BATCH;
    orin.fail(Failure { call: Call::Ioctl(code), nth: 1, errno: Errno::NOMEM });
    let error = range.map_batch(&[place(0, 0), place(PAGE, 0)]).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::NOMEM), "{error}");
    assert_eq!(orin.live().gpu_mappings, 0);
    assert_eq!(range.map_batch(&[place(0, 0), place(PAGE, 0)]).unwrap().len(), 2);
    assert!(range.map_batch(&[]).unwrap().is_empty());
}

#[test]
fn topology_is_that_of_the_board() {
    use nvgpu_channel::{CpuClock, EngineKind};
    let (orin, gpu) = open();
    assert_eq!(gpu.tpc_masks().unwrap(), [0b1111, 0b1111]);
    assert_eq!(gpu.l2_slice_masks().unwrap(), [0xf, 0xf]);
    assert_eq!(gpu.gpc_indices().unwrap(), [(0, 0), (1, 1)]);
    assert_eq!(gpu.zcull_context_bytes().unwrap(), 164_352);
    let sms = gpu.sm_positions().unwrap();
    assert_eq!(sms.len(), 16);
    assert!(sms.iter().enumerate().all(|(id, sm)| usize::from(sm.tpc) == id / 2));
    assert!(sms.iter().enumerate().all(|(id, sm)| usize::from(sm.gpc) == id / 8));
    assert!(sms.iter().enumerate().all(|(id, sm)| usize::from(sm.sm_in_tpc) == id % 2));
    let engines = gpu.engines().unwrap();
    let graphics = engines.iter().find(|engine| engine.kind == EngineKind::Graphics).unwrap();
    let copy = engines.iter().find(|engine| engine.kind == EngineKind::AsyncCopy).unwrap();
    assert_eq!(graphics.runlist, 0);
    assert_ne!(copy.runlist, graphics.runlist);
    // A driver reports a failed copy-out with a positive result.
    orin.fail(Failure { call: Call::Ioctl(ctrl::code::VSMS_MAPPING), nth: 1, errno: Errno::OVERFLOW });
    assert_eq!(gpu.sm_positions().unwrap_err().errno(), Some(Errno::OVERFLOW));

    let pairs = gpu.correlate_clocks(CpuClock::Counter, 16).unwrap();
    assert_eq!(pairs.len(), 16);
    assert!(pairs.windows(2).all(|two| two[0].gpu_ns <= two[1].gpu_ns && two[0].cpu <= two[1].cpu));
    assert!(gpu.correlate_clocks(CpuClock::Realtime, 0).unwrap().is_empty());
    assert!(matches!(gpu.correlate_clocks(CpuClock::Realtime, 17), Err(Error::Range { value: 17, .. })));
    let (earlier, clock) = (std::time::SystemTime::now(), gpu.wall_clock().unwrap());
    let reported = clock.system_time(gpu.time_ns().unwrap()).unwrap();
    let later = std::time::SystemTime::now();
    let slack = core::time::Duration::from_millis(1);
    assert!(reported + slack >= earlier && reported <= later + slack, "{earlier:?} {reported:?} {later:?}");
}
