//! Opening the GPU and everything up to a channel, on the software Orin.

use std::sync::Arc;

use crate::common::{boot, compute_channel, open};
use kernel_door::Errno;
use nvgpu_channel::{
    Access, Error, Gpu, GpuFlags, GpuVa, LOCAL_WINDOW, MapOptions, SHARED_WINDOW, VA_END, VA_START,
};
use nvgpu_sys::{address_space, ctrl};
use orin_sim::{Call, Config, Failure, LiveCounts, Node, Nodes};

#[test]
fn the_board_is_seen_as_what_it_is() {
    let (_orin, gpu) = open();
    let seen = gpu.characteristics();
    assert_eq!(seen.chip_name(), "ga10b");
    assert_eq!(
        (seen.compute_class(), seen.gpfifo_class(), seen.copy_class()),
        (
            nvgpu_channel::AMPERE_COMPUTE_B,
            nvgpu_channel::AMPERE_CHANNEL_GPFIFO_B,
            nvgpu_channel::AMPERE_DMA_COPY_B
        )
    );
    assert_eq!((seen.sm_version(), seen.sm_count()), ((8, 7), 16));
    assert_eq!((seen.gpc_count(), seen.tpcs_per_gpc()), (2, 4));
    assert_eq!((seen.l2_bytes(), seen.max_frequency_hz()), (4 << 20, 1_300_000_000));
    assert!(seen.flags().contains(GpuFlags::SUPPORT_IO_COHERENCE));
}

#[test]
fn missing_nodes_are_errors_that_name_the_cure() {
    for (node, errno, cure) in
        [(Node::Absent, Errno::NOENT, "not a Jetson"), (Node::Denied, Errno::ACCESS, "group video")]
    {
        for nodes in [Nodes { ctrl: node, ..Nodes::default() }, Nodes { nvmap: node, ..Nodes::default() }] {
            let (orin, door) = boot(Config { nodes, ..Config::default() });
            let error = Gpu::open(&door).unwrap_err();
            assert_eq!(error.errno(), Some(errno));
            assert!(error.to_string().contains(cure), "{error}");
            assert_eq!(orin.live(), LiveCounts::default());
        }
    }
}

#[test]
fn a_gpu_that_cannot_be_driven_is_refused_and_closed() {
    let refused = |change: fn(&mut ctrl::Characteristics)| {
        let mut config = Config::default();
        change(&mut config.characteristics);
        let (orin, door) = boot(config);
        let error = Gpu::open(&door).unwrap_err();
        assert_eq!(orin.live(), LiveCounts::default());
        error
    };
    assert!(matches!(
        refused(|gpu| gpu.compute_class = 0xc5c0),
        Error::UnknownClass { engine: "compute", found: 0xc5c0, .. }
    ));
    assert!(matches!(refused(|gpu| gpu.gpfifo_class = 0), Error::UnknownClass { engine: "host", .. }));
    assert!(matches!(refused(|gpu| gpu.dma_copy_class = 0), Error::UnknownClass { engine: "copy", .. }));
    let missing = refused(|gpu| gpu.flags &= !GpuFlags::SUPPORT_TSG_SUBCONTEXTS.bits());
    assert!(missing.to_string().contains("lacks SUPPORT_TSG_SUBCONTEXTS"), "{missing}");
    assert!(matches!(
        refused(|gpu| gpu.ioctl_channel_nr_last = 127),
        Error::DriverTooOld { node: "channel", needed: 128, last: 127, .. }
    ));
    assert!(matches!(refused(|gpu| gpu.gpu_va_bit_count = 37), Error::NarrowAddresses { bits: 37 }));
}

/// Without NUM_VSMS, the TPC masks give the count, which need not be GPCs times TPCs per GPC.
#[test]
fn sms_are_counted_by_tpcs_on_a_driver_without_the_request() {
    let failure = Failure { call: Call::Ioctl(ctrl::code::NUM_VSMS), nth: 1, errno: Errno::NOTTY };
    let floorswept = Config { tpc_masks: [0b0101, 0b0001], failures: vec![failure], ..Config::default() };
    let (_orin, door) = boot(floorswept);
    assert_eq!(Gpu::open(&door).unwrap().characteristics().sm_count(), 6);
    let no_masks = Failure { call: Call::Ioctl(ctrl::code::GET_TPC_MASKS), ..failure };
    let (_orin, door) = boot(Config { failures: vec![failure, no_masks], ..Config::default() });
    assert_eq!(Gpu::open(&door).unwrap().characteristics().sm_count(), 16);
}

#[test]
fn the_clock_runs_and_the_l2_flushes() {
    let (_orin, gpu) = open();
    let first = gpu.time_ns().unwrap();
    assert!(first > 0 && gpu.time_ns().unwrap() >= first);
    gpu.flush_l2(false).unwrap();
    gpu.flush_l2(true).unwrap();
}

#[test]
fn the_user_range_keeps_all_mappings_below_40_bits_and_off_the_windows() {
    let (_orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    assert_eq!(space.user_range().unwrap(), (VA_START, VA_END.get() - VA_START.get()));
    assert!(VA_END < LOCAL_WINDOW && LOCAL_WINDOW < SHARED_WINDOW);
    // 4 GiB of buffers reached into the shared window in the layout that ends at 2^40.
    let buffer = Arc::new(gpu.nvmap().buffer(8 << 30).label("weights").allocate().unwrap());
    let mapping = space.map(&buffer, MapOptions::default()).unwrap();
    assert!(mapping.va() >= VA_START && mapping.va().checked_add(mapping.len()).unwrap() <= VA_END);
    // The windows cannot be reserved explicitly either.
    assert!(space.reserve_fixed(SHARED_WINDOW, 4096, false).is_err());
}

#[test]
fn a_mapping_keeps_what_it_needs_and_gives_everything_back() {
    let (orin, gpu) = open();
    let before = orin.live();
    let space = gpu.address_space().unwrap();
    let buffer = Arc::new(gpu.nvmap().buffer(4096).allocate().unwrap());
    let mapping = space.map(&buffer, MapOptions::default()).unwrap();
    let again = space.map(&buffer, MapOptions::default()).unwrap();
    assert_eq!(mapping.va(), again.va());
    let cached = MapOptions { gpu_cached: true, access: Access::ReadOnly, ..MapOptions::default() };
    let other = space.map(&buffer, cached).unwrap();
    assert_ne!(mapping.va(), other.va());
    assert!(other.va().is_aligned(4096));
    drop(space);
    drop(buffer);
    drop(other);
    drop(mapping);
    assert_eq!((orin.live().gpu_mappings, orin.live().address_spaces), (1, 1));
    assert_eq!((again.buffer().size(), again.len()), (4096, 4096));
    drop(again);
    assert_eq!(orin.live(), before);
}

#[test]
fn chosen_addresses_work_inside_a_reservation_only() {
    let (orin, gpu) = open();
    let before = orin.live();
    let space = gpu.address_space().unwrap();
    let buffer = Arc::new(gpu.nvmap().buffer(4 * 4096).allocate().unwrap());
    let va = GpuVa(0x10_0000_0000);
    let range = space.reserve_fixed(va, 1 << 20, false).unwrap();
    assert_eq!((range.va(), range.len(), range.is_empty()), (va, 1 << 20, false));
    let map =
        |offset, buffer_offset, len| range.map(offset, &buffer, buffer_offset, len, MapOptions::default());

    let mapping = map(8192, 4096, 8192).unwrap();
    assert_eq!((mapping.va(), mapping.len()), (GpuVa(0x10_0000_2000), 8192));
    assert_eq!(mapping.reservation().unwrap().va(), va);
    for (offset, buffer_offset, len) in [
        (1, 0, 4096),
        (0, 1, 4096),
        (0, 0, 1),
        (0, 0, 0),
        (1 << 20, 0, 4096),
        (0, 4 * 4096, 4096),
        (u64::MAX - 4095, 0, 4096),
    ] {
        let error = map(offset, buffer_offset, len).unwrap_err();
        assert!(matches!(error, Error::Range { .. }), "{offset} {buffer_offset} {len}: {error}");
    }
    for (offset, len) in [(4096, 8192), (8192, 4096), (12_288, 4096), (0, 1 << 14)] {
        let error = map(offset, 0, len).unwrap_err();
        assert!(matches!(error, Error::Overlap { .. }), "{offset} {len}: {error}");
    }
    assert!(space.reserve_fixed(va, 4096, false).is_err(), "taken");
    assert!(matches!(space.reserve(5000, false), Err(Error::Range { .. })));
    let sparse = space.reserve(1 << 21, true).unwrap();
    assert!(sparse.va() >= VA_START);

    // The range stays reserved until the last mapping in it is dropped.
    drop(range.clone());
    let moved = range;
    drop(moved);
    assert!(space.reserve_fixed(va, 4096, false).is_err());
    drop(mapping);
    drop(space.reserve_fixed(va, 4096, false).unwrap());
    drop((sparse, space, buffer));
    assert_eq!(orin.live(), before);
}

#[test]
fn a_channel_comes_up_with_its_token() {
    let (orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let subcontext = gpu.tsg().unwrap().subcontext(&space).unwrap();
    assert_eq!(subcontext.veid(), 1);
    let compute = subcontext.channel(gpu.characteristics().compute_class()).label("compute").open().unwrap();
    let copy = subcontext.channel(gpu.characteristics().copy_class()).label("copy").open().unwrap();
    // Channel numbers go down from 511; the GR runlist is 0.
    assert_eq!((compute.token(), copy.token()), (511, 510));
    assert_eq!((compute.entries(), compute.gp_get(), compute.gp_put()), (1024, 0, 0));
    assert_eq!((compute.label(), compute.subcontext().veid()), ("compute", 1));
    assert!(compute.in_service().unwrap());
    assert_eq!(compute.error_notifier(), None);
    assert_eq!(compute.doorbell().register(), copy.doorbell().register());
    assert_eq!(orin.kernel_log(), Vec::<String>::new(), "bring-up is silent");
}

#[test]
fn rings_have_a_power_of_two_of_entries() {
    let (orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let subcontext = gpu.tsg().unwrap().subcontext(&space).unwrap();
    let before = orin.ioctl_count();
    for entries in [0, 1, 3, 1000, 1 << 29, u32::MAX] {
        let error = subcontext.channel(0xc7c0).entries(entries).open().unwrap_err();
        assert!(matches!(error, Error::RingSize { .. }), "{entries}: {error}");
    }
    assert_eq!(orin.ioctl_count(), before);
    for entries in [2, 512, 65_536] {
        assert_eq!(subcontext.channel(0xc7c0).entries(entries).open().unwrap().entries(), entries);
    }
}

#[test]
fn an_unknown_class_is_refused_by_the_kernel_and_the_channel_given_back() {
    let (orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let subcontext = gpu.tsg().unwrap().subcontext(&space).unwrap();
    // The GPU keeps the doorbell page mapped after the first channel.
    drop(subcontext.channel(0xc7c0).open().unwrap());
    let before = orin.live();
    let error = subcontext.channel(0x1234).label("odd").open().unwrap_err();
    assert_eq!(error.errno(), Some(Errno::INVAL));
    assert!(error.to_string().contains("NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX on odd failed"), "{error}");
    assert_eq!(orin.live(), before);
}

/// Everything from opening the nodes to a channel with a mapping.
fn bring_up(door: &Arc<dyn kernel_door::Door>) -> Result<(), Error> {
    let gpu = Gpu::open(door)?;
    let space = gpu.address_space()?;
    let buffer = Arc::new(gpu.nvmap().buffer(4096).allocate()?);
    let _mapping = space.map(&buffer, MapOptions::default())?;
    let range = space.reserve(8192, false)?;
    let _inside = range.map(4096, &buffer, 0, 4096, MapOptions::default())?;
    let subcontext = gpu.tsg()?.subcontext(&space)?;
    let _channel = subcontext.channel(gpu.characteristics().compute_class()).open()?;
    Ok(())
}

/// Lets every open, request and mmap of a bring-up fail once.
#[test]
fn a_failure_at_any_step_leaks_nothing() {
    let (orin, door) = boot(Config::default());
    bring_up(&door).unwrap();
    assert_eq!(orin.live(), LiveCounts::default());

    // Counting SMs and the question for a request of R39 have fallbacks, and an error on release does not fail a
    // bring-up.
    let no_error = [
        ctrl::code::NUM_VSMS,
        ctrl::code::GET_TPC_MASKS,
        address_space::code::UNMAP_BUFFER,
        address_space::code::FREE_SPACE,
        nvgpu_sys::tsg::code::DELETE_SUBCONTEXT,
        nvgpu_sys::nvmap::code::FREE,
        nvgpu_sys::nvmap::code::QUERY_HEAP_PARAMS_NUMA,
    ];
    let requests = orin.ioctl_counts().into_iter().filter(|(code, _)| !no_error.contains(code));
    let mut calls: Vec<(Call, u64)> = requests.map(|(code, count)| (Call::Ioctl(code), count)).collect();
    // Two nodes; one data buffer, ring, USERD, notifier and doorbell page.
    calls.extend([(Call::Open, 2), (Call::Mmap, 5)]);
    let mut failed = 0;
    for (call, count) in calls {
        for nth in 1..=count {
            for errno in [Errno::NOMEM, Errno::ACCESS, Errno::NOENT] {
                orin.fail(Failure { call, nth, errno });
                if (call, nth, errno) == (Call::Open, 1, Errno::ACCESS) {
                    // The memory node is then opened for reading.
                    bring_up(&door).unwrap();
                    continue;
                }
                let error = bring_up(&door).expect_err("the failure was due");
                assert_eq!(error.errno(), Some(errno), "{call:?} {nth}: {error}");
                assert_eq!(orin.live(), LiveCounts::default(), "{call:?} {nth} left something: {error}");
                failed += 1;
            }
        }
    }
    assert!(failed > 60, "{failed} failures tried");
    bring_up(&door).unwrap();
}

#[test]
fn objects_can_be_dropped_in_any_order() {
    let (orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let tsg = gpu.tsg().unwrap();
    let subcontext = tsg.subcontext(&space).unwrap();
    let channel = subcontext.channel(0xc7c0).open().unwrap();
    let notifier = channel.notifier().clone();
    drop(gpu);
    drop(space);
    drop(tsg);
    drop(subcontext);
    assert!(channel.in_service().unwrap());
    drop(channel);
    assert_eq!(notifier.fault(), None);
    drop(notifier);
    assert_eq!(orin.live(), LiveCounts::default());
}

#[test]
fn a_hundred_channels_leave_no_trace() {
    let (orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    drop(compute_channel(&gpu, &space, 16));
    let before = orin.live();
    for _ in 0..100 {
        let channel = compute_channel(&gpu, &space, 16);
        assert_eq!(channel.token(), 511);
    }
    assert_eq!(orin.live(), before);
}

#[test]
fn time_slices_are_set_in_whole_microseconds() {
    use core::time::Duration;
    let (_orin, gpu) = open();
    let tsg = gpu.tsg().unwrap();
    assert_eq!(tsg.timeslice().unwrap(), Duration::from_micros(1024));
    tsg.set_timeslice(Duration::from_millis(5)).unwrap();
    assert_eq!(tsg.timeslice().unwrap(), Duration::from_millis(5));
    assert_eq!(tsg.set_timeslice(Duration::from_micros(999)).unwrap_err().errno(), Some(Errno::INVAL));
    assert!(matches!(tsg.set_timeslice(Duration::from_secs(5000)), Err(Error::Range { .. })));
}
