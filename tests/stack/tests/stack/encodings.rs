//! Encodings chosen by options: what strict mode says about them, and that every choice computes the same.

use std::sync::Arc;

use orin_sim::strict::{Cache, Encoding, Violation};
use orin_sim::{Config, SoftwareOrin};
use tegra_hcq::{
    Chaining, Device, DeviceKind, DeviceOptions, Error, Mapping, PcasAction, Program, QueueOptions,
    ReleaseBy, WaitPolicy, args,
};
use test_support::{TIMEOUT, cubin};

/// Words of each buffer.
const LEN: u32 = 64;

/// A device with these options on a strict software Orin.
fn open(options: DeviceOptions) -> (SoftwareOrin, Device) {
    let orin = SoftwareOrin::new(Config { strict: true, ..Config::default() }).unwrap();
    let device = options.open_through(Arc::new(orin.clone()), DeviceKind::Sim).unwrap();
    (orin, device)
}

/// Launches, then a graph of three steps whose input the CPU rewrites in place between replays, on a queue of each
/// kind. Checks the results; returns the kinds of strict mode's reports.
fn run(options: DeviceOptions) -> Vec<Violation> {
    let (orin, device) = open(options);
    let program = Program::load(&device, &cubin("suites")).unwrap();
    let pass_on = program.kernel("pass_on").unwrap();
    let mut input = device.alloc_from(&[0_u32; LEN as usize]).unwrap();
    let [first, second, output] = [(); 3].map(|()| device.alloc_zeroed::<u32>(LEN as usize).unwrap());
    let steps = [(&input, &first), (&first, &second), (&second, &output)];
    let mut builder = device.graph();
    for (source, target) in steps {
        unsafe { builder.launch(&pass_on, 2, 32, &args![target, source, 0_u32, LEN]) }.unwrap();
    }
    let mut graph = builder.build().unwrap();
    for policy in [WaitPolicy::Sleep, WaitPolicy::Spin] {
        let mut queue = device.queue_with(&QueueOptions::default().wait(policy)).unwrap();
        for round in 0..12_u32 {
            input.copy_from_slice(&[round * 7; LEN as usize]).unwrap();
            if round % 2 == 0 {
                queue.replay(&mut graph).unwrap();
            } else {
                for (source, target) in [(&input, &first), (&first, &second), (&second, &output)] {
                    unsafe { queue.launch(&pass_on, 2, 32, &args![target, source, 0_u32, LEN]) }.unwrap();
                }
            }
            queue.wait(TIMEOUT).unwrap();
            assert_eq!(output.to_vec().unwrap(), [round * 7 + 3; LEN as usize], "{options:?}, round {round}");
        }
    }
    let mut found: Vec<_> = orin.strict_reports().iter().map(|report| report.violation).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn the_default_is_what_boards_have_accepted() {
    assert_eq!(run(DeviceOptions::new()), []);
    let other = PcasAction::InvalidatePrefetchCopySchedule;
    assert_eq!(run(DeviceOptions::new().pcas_action(other).release(ReleaseBy::Descriptor)), []);
}

#[test]
fn without_chaining_a_graph_is_single_launches() {
    for release in [ReleaseBy::Host, ReleaseBy::Descriptor] {
        assert_eq!(run(DeviceOptions::new().chaining(Chaining::Off).release(release)), []);
    }
}

#[test]
fn encodings_that_no_board_has_accepted_are_reported() {
    let action = DeviceOptions::new().pcas_action(PcasAction::InvalidateCopySchedule);
    assert_eq!(run(action), [Violation::Unproven(Encoding::PcasAction(3))]);
    let chain = DeviceOptions::new().chaining(Chaining::InvalidateCopySchedule);
    assert_eq!(run(chain), [Violation::Unproven(Encoding::Chain { action: 3, prefetch: false })]);
}

#[test]
fn inputs_rewritten_in_place_need_the_method() {
    let found = run(DeviceOptions::new().shader_invalidate(false));
    assert!(found.contains(&Violation::Stale(Cache::Data)), "{found:?}");
    assert!(found.iter().all(|violation| matches!(violation, Violation::Stale(_))), "{found:?}");
}

#[test]
fn mappings_can_be_coherent_or_cached() {
    assert_eq!(run(DeviceOptions::new().mapping(Mapping::SystemCoherent)), []);
    let cached = DeviceOptions::new().mapping(Mapping::L2Cached);
    assert!(run(cached).contains(&Violation::Stale(Cache::L2)));
    assert_eq!(run(cached.l2_invalidate(true).l2_flush(true)), []);
}

#[test]
fn an_action_that_does_not_launch_is_refused_at_open() {
    let orin = SoftwareOrin::new(Config::default()).unwrap();
    let options = DeviceOptions::new().pcas_action(PcasAction::Prefetch);
    let error = options.open_through(Arc::new(orin), DeviceKind::Sim).unwrap_err();
    assert!(matches!(error, Error::PcasAction(PcasAction::Prefetch)), "{error}");
}
