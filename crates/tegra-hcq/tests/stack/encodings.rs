//! Encodings chosen by options: what the order check finds about them, and that every choice computes the same.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use orin_sim::check::{Finding, Kind, Tools};
use orin_sim::{BrokenChain, ChainEffect, Config, Quirks, SoftwareOrin};
use tegra_hcq::{
    Chaining, Device, DeviceKind, DeviceOptions, Error, Mapping, PcasAction, Program, QueueOptions,
    ReleaseBy, WaitPolicy, args,
};
use test_support::{TIMEOUT, cubin};

/// Words of each buffer.
const LEN: u32 = 64;

/// A device with these options on a software Orin with the order check.
fn open(options: DeviceOptions) -> (SoftwareOrin, Device) {
    let orin = SoftwareOrin::new(test_support::config().with_checks(Tools::ORDERING)).unwrap();
    let device = options.open_through(Arc::new(orin.clone()), DeviceKind::Sim).unwrap();
    (orin, device)
}

/// A kind of finding, and the memory, cache or encoding that it is about.
type Found = (Kind, String);

/// What the order check has found, without repetitions.
fn found(orin: &SoftwareOrin) -> Vec<Found> {
    let findings = orin.checker().unwrap().findings();
    let space = |finding: &Finding| finding.access.as_ref().unwrap().space.to_string();
    let found: BTreeSet<Found> = findings.iter().map(|finding| (finding.kind, space(finding))).collect();
    found.into_iter().collect()
}

fn unproven(encoding: &str) -> Found {
    (Kind::Unproven, encoding.to_owned())
}

/// Launches, then a graph of three steps whose input the CPU rewrites in place between replays, on a queue of each
/// kind. Checks the results; returns what the order check has found.
fn run(options: DeviceOptions) -> Vec<Found> {
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
    found(&orin)
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

/// Three laps of the ring of launch records: each launch takes the record that the CPU has written last at its address.
#[test]
fn launches_that_are_read_early_use_their_own_records() {
    const LAUNCHES: u32 = 5000;
    let options = DeviceOptions::new().chaining(Chaining::Off).early_prefetch(true);
    for release in [ReleaseBy::Host, ReleaseBy::Descriptor] {
        let (orin, device) = open(options.release(release));
        let fill = Program::load(&device, &cubin("basics")).unwrap().kernel("fill_u32").unwrap();
        let mut out = device.alloc_zeroed::<u32>(LAUNCHES as usize).unwrap();
        let mut queue = device.queue_with(&QueueOptions::default().wait(WaitPolicy::Spin)).unwrap();
        for at in 0..LAUNCHES {
            let mut place = out.slice_mut(at as usize..at as usize + 1).unwrap();
            unsafe { queue.launch(&fill, 1, 32, &args![&mut place, 3 * at + 1, 1_u32]) }.unwrap();
            if at % 10 == 9 {
                queue.submit().unwrap();
            }
        }
        queue.wait(TIMEOUT).unwrap();
        let seen = out.to_vec().unwrap();
        assert!(seen.iter().enumerate().all(|(at, value)| *value as usize == 3 * at + 1), "{release:?}");
        let found = found(&orin);
        let used = ["PCAS action 2", "PCAS action 8"].map(unproven);
        assert_eq!(found, used, "SCHEDULE and PREFETCH, {release:?}");
    }
}

#[test]
fn encodings_that_no_board_has_accepted_are_reported() {
    let action = DeviceOptions::new().pcas_action(PcasAction::InvalidateCopySchedule);
    assert_eq!(run(action), [unproven("PCAS action 3")]);
    let chain = DeviceOptions::new().chaining(Chaining::InvalidateCopySchedule);
    assert_eq!(run(chain), [unproven("a dependent descriptor with action 3 without prefetch")]);
}

#[test]
fn inputs_rewritten_in_place_need_the_method() {
    let found = run(DeviceOptions::new().shader_invalidate(false));
    assert!(found.contains(&(Kind::Stale, "L1 data cache".to_owned())), "{found:?}");
    assert!(found.iter().all(|(kind, _)| *kind == Kind::Stale), "{found:?}");
}

#[test]
fn mappings_can_be_coherent_or_cached() {
    assert_eq!(run(DeviceOptions::new().mapping(Mapping::SystemCoherent)), []);
    let cached = DeviceOptions::new().mapping(Mapping::L2Cached);
    assert!(run(cached).contains(&(Kind::Stale, "L2 cache".to_owned())));
    assert_eq!(run(cached.l2_invalidate(true).l2_flush(true)), []);
}

#[test]
fn an_action_that_does_not_launch_is_refused_at_open() {
    let orin = SoftwareOrin::new(test_support::config()).unwrap();
    let options = DeviceOptions::new().pcas_action(PcasAction::Prefetch);
    let error = options.open_through(Arc::new(orin), DeviceKind::Sim).unwrap_err();
    assert!(matches!(error, Error::PcasAction(PcasAction::Prefetch)), "{error}");
}

/// Work that takes longer hangs.
const HANG: Duration = Duration::from_secs(1);

/// Two launches that each add 1 to a word, on a board with quirks: the sum, or the error of the wait.
fn add_twice(quirks: &Quirks, options: DeviceOptions) -> Result<u32, Error> {
    let orin = SoftwareOrin::new(Config { quirks: quirks.clone(), ..test_support::config() }).unwrap();
    let device = options.open_through(Arc::new(orin), DeviceKind::Sim).unwrap();
    let increment = Program::load(&device, &cubin("basics")).unwrap().kernel("increment").unwrap();
    let mut queue = device.queue().unwrap();
    let data = device.alloc_zeroed::<u32>(1).unwrap();
    for _ in 0..2 {
        unsafe { queue.launch(&increment, 1, 32, &args![&data, 1_u32]) }.unwrap();
    }
    let result = queue.submit().unwrap().wait(HANG);
    if result.is_err() {
        // A hang can be recovered from, as from a kernel that does not end.
        assert_eq!(device.recover().unwrap().hanging, 1);
    }
    result.map(|()| data.to_vec().unwrap()[0])
}

#[test]
fn a_board_may_ignore_encodings_or_hang() {
    let chain = |effect| Quirks {
        broken_chains: vec![BrokenChain { action: 1, prefetch: true, effect }],
        ..Quirks::default()
    };
    let default = DeviceOptions::new();
    assert_eq!(add_twice(&chain(ChainEffect::Lost), default).unwrap(), 1);
    assert!(matches!(add_twice(&chain(ChainEffect::Hang), default), Err(Error::Timeout { .. })));
    // Other encodings still work.
    for way in [Chaining::Off, Chaining::InvalidateCopySchedule] {
        assert_eq!(add_twice(&chain(ChainEffect::Hang), default.chaining(way)).unwrap(), 2);
    }
    let hanging = Quirks { hanging_pcas_actions: vec![9], ..Quirks::default() };
    assert!(matches!(add_twice(&hanging, default), Err(Error::Timeout { .. })));
    let other = default.pcas_action(PcasAction::InvalidatePrefetchCopySchedule);
    assert_eq!(add_twice(&hanging, other).unwrap(), 2);
    let inert = Quirks { inert_pcas_actions: vec![9], ..Quirks::default() };
    assert_eq!(add_twice(&inert, default).unwrap(), 0);
}
