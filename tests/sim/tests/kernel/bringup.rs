//! The bring-up of a compute channel, with the numbers observed on a board.

use crate::support::*;
use nvgpu_sys::{channel, ctrl, tsg};
use orin_sim::Config;

#[test]
fn the_known_good_sequence_gives_the_boards_numbers() {
    // The board ran in this power mode.
    let bench = Bench::with(Config::of("agx-64:30w".parse().unwrap()));
    let (characteristics, bytes) = ctrl::get_characteristics(&bench.ctrl).unwrap();
    assert_eq!(bytes, 328);
    assert_eq!((characteristics.compute_class, characteristics.gpfifo_class), (0xc7c0, 0xc76f));
    assert_eq!(&characteristics.chipname, b"ga10b\0\0\0");
    assert_eq!(
        (characteristics.num_gpc, characteristics.num_tpc_per_gpc, characteristics.gpc_mask),
        (1, 4, 1)
    );
    assert_eq!(characteristics.device_instance_id, 1);
    let mut vsms = ctrl::NumVsms::default();
    ctrl::NUM_VSMS.send(&bench.ctrl, &mut vsms).unwrap();
    assert_eq!(vsms.num_vsms, 8);

    let space = bench.space();
    let doorbell = bench.doorbell();
    assert_eq!(doorbell.len(), 0x1_0000);
    let tsg = bench.tsg();
    assert_eq!(subcontext(&tsg, &space, tsg::SUBCONTEXT_ASYNC), Ok(1));

    // A compute channel and a copy channel on the same subcontext.
    let mut live = Vec::new();
    for (class, token) in [(0xc7c0, 511), (0xc7b5, 510)] {
        let channel = bench.channel();
        bind_space(&space, &channel).unwrap();
        bind_tsg(&tsg, &channel, 1).unwrap();
        wdt(&channel, channel::WDT_DISABLE).unwrap();
        let (ring, userd) = (bench.buffer(8192), bench.buffer(4096));
        let mut args = setup_args(&ring, &userd, 1024);
        channel::SETUP_BIND.send(&channel, &mut args).unwrap();
        assert_eq!(args.work_submit_token, token);
        assert_eq!((args.gpfifo_gpu_va, args.userd_gpu_va, args.usermode_mmio_gpu_va), (0, 0, 0));
        object(&channel, class).unwrap();
        live.push(channel);
    }

    // The first addresses in the logs, by size.
    let buffers: Vec<(u32, u64)> = vec![
        (0x1000, 0xff_ffa0_0000),
        (0x1000, 0xff_ffa0_1000),
        (0x1_0000, 0xff_ffa1_0000),
        (0x10_0000, 0xff_ffb0_0000),
        (0x100_0000, 0xff_fe20_0000),
        (0x400_0000, 0xff_f820_0000),
    ];
    for (bytes, va) in buffers {
        assert_eq!(map(&space, &bench.buffer(bytes)), Ok(va), "{bytes:#x}");
    }
    let warnings = bench.orin.kernel_log();
    let warned = warnings.iter().filter(|line| line.starts_with("WARNING:")).count();
    assert_eq!(warned, 2, "one per ALLOC_OBJ_CTX, as the RTV buffer lies above 2^40: {warnings:#?}");
}

#[test]
fn windows_reserved_at_fixed_addresses_are_avoided() {
    let bench = Bench::new();
    let space = bench.space();
    for window in [0xfd_0000_0000, 0xfe_0000_0000] {
        assert_eq!(reserve(&space, 0x4_0000, 1, window), Ok(window));
        assert_eq!(reserve(&space, 1, 1, window + 0x1000), Err(kernel_door::Errno::NOMEM));
    }
    // A 2 MiB block has been split off on either side of each window; the last one is used first.
    assert_eq!(map(&space, &bench.buffer(4096)), Ok(0xfe_4000_0000));
}

#[test]
fn a_lower_end_keeps_the_context_below_the_limit() {
    let bench = Bench::new();
    let space = bench.try_alloc_as(LOGGED_START, 0xff_0000_0000).unwrap();
    let (tsg, channel) = (bench.tsg(), bench.channel());
    bind_space(&space, &channel).unwrap();
    bind_tsg(&tsg, &channel, 0).unwrap();
    object(&channel, 0xc7c0).unwrap();
    assert_eq!(bench.orin.kernel_log(), [""; 0]);
}

#[test]
fn a_large_ring_below_the_limit_pushes_the_context_above_it() {
    let bench = Bench::new();
    let (_space, _tsg, channel) = bench.bound();
    let (ring, userd) = (bench.buffer(3 << 20), bench.buffer(4096));
    setup(&channel, &ring, &userd, 1024).unwrap();
    assert_eq!(object(&channel, 0xc7c0), Err(kernel_door::Errno::NODEV));
    assert!(bench.orin.kernel_log().iter().any(|line| line.contains("a board freezes here")));
    assert_eq!(ctrl::get_characteristics(&bench.ctrl).unwrap_err(), kernel_door::Errno::INVAL);
}
