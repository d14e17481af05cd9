//! Loader features of cubins on the software Orin: constants, variables with pointers, calls by address and through
//! tables, recursion, shared memory, large parameters; for every compiler version.

use std::fs;
use std::time::Duration;

use tegra_hcq::{Arg, Buffer, Device, DeviceKind, Download, Error, Pod, Program, Queue, RangeError, args};

const TIMEOUT: Duration = Duration::from_secs(120);

/// Cubins of `features.cu` for sm_87: whole programs, and objects linked by nvJitLink.
const CUBINS: [&str; 6] = [
    "features.12.2.140",
    "features.12.6.85",
    "features.12.9.86",
    "features.13.0.88",
    "linked.12.6.85",
    "linked.13.0.88",
];

fn read(name: &str) -> Vec<u8> {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../cubin/tests/data/features");
    fs::read(format!("{data}/{name}.sm_87.cubin")).expect("the cubin exists")
}

/// Loads every cubin on one device, and runs the test with a queue.
fn each(mut test: impl FnMut(&str, &Device, &Program, &mut Queue)) {
    let device = Device::open(DeviceKind::Sim).expect("the software Orin opens");
    for name in CUBINS {
        let program = Program::load(&device, &read(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut queue = device.queue().unwrap();
        test(name, &device, &program, &mut queue);
    }
}

/// Launches one block of `threads`. Returns the first argument's elements.
fn run<T: Pod>(
    queue: &mut Queue,
    program: &Program,
    kernel: &str,
    threads: u32,
    out: &Buffer<T>,
    rest: &[i32],
) -> Vec<T> {
    let kernel = program.kernel(kernel).unwrap();
    match *rest {
        [] => unsafe { queue.launch(&kernel, 1, threads, &args![out]) },
        [a] => unsafe { queue.launch(&kernel, 1, threads, &args![out, a]) },
        [a, b] => unsafe { queue.launch(&kernel, 1, threads, &args![out, a, b]) },
        [a, b, c] => unsafe { queue.launch(&kernel, 1, threads, &args![out, a, b, c]) },
        _ => panic!("four arguments at most"),
    }
    .unwrap();
    queue.wait(TIMEOUT).unwrap();
    out.to_vec().unwrap()
}

const TAPS: [f32; 5] = [0.0625, 0.25, 0.375, 0.25, 0.0625];
const PRIMES: [u32; 8] = [2, 3, 5, 7, 11, 13, 17, 19];

#[test]
fn constants_and_variables_with_pointers() {
    each(|name, device, program, queue| {
        let names: Vec<&str> = program.variable_names().filter(|name| !name.starts_with("_ZN")).collect();
        let all = [
            "constant_operations",
            "ends",
            "into_primes",
            "launches",
            "middle",
            "operations",
            "packed",
            "palette",
        ];
        assert_eq!(names, [&all[..], &["primes", "taps", "zeroed"]].concat(), "{name}");
        let taps = program.variable::<f32>("taps").unwrap();
        let (palette, primes) =
            (program.variable::<u32>("palette").unwrap(), program.variable::<u32>("primes").unwrap());
        let (launches, zeroed) =
            (program.variable::<u32>("launches").unwrap(), program.variable::<f32>("zeroed").unwrap());
        assert_eq!(taps.get().unwrap(), TAPS, "{name}");
        assert_eq!((taps.len(), taps.is_empty(), taps.is_constant()), (5, false, true), "{name}");
        assert_eq!(primes.get().unwrap(), PRIMES, "{name}");
        assert!(!primes.is_constant());
        assert_eq!((launches.get().unwrap(), palette.get().unwrap()), (vec![41], vec![0; 16]), "{name}");
        assert_eq!(
            program.variable::<u64>("middle").unwrap().get().unwrap(),
            [primes.gpu_va() + 12],
            "{name}"
        );

        // The kernel's sums, first with the initial values and then with other values in both memories.
        let out = device.alloc_zeroed::<f32>(32).unwrap();
        let (mut primes_now, mut round) = (PRIMES, 0.0);
        for (launch, colour, first) in [(41_u32, 0_u32, TAPS[0]), (1000, 7, 8.0)] {
            let mut taps_now = TAPS;
            taps_now[0] = first;
            taps.set(&taps_now).unwrap();
            palette.set(&[colour; 16]).unwrap();
            launches.set(&[launch]).unwrap();
            primes_now[3] += colour;
            primes.set(&primes_now).unwrap();
            round += 1.0;
            let got = run(queue, program, "variables", 32, &out, &[3]);
            // Multiples of 1/16 below 2^20, so every sum is exact.
            let sum = |i: usize| {
                let [at_3, at_5, other] = [3, 5, i % 8].map(|at| primes_now[at]);
                taps_now[i % 5] + (colour + other + launch + at_3 + at_5) as f32
            };
            let expected: Vec<f32> = (0..32).map(|i| sum(i) + primes_now[6] as f32).collect();
            assert_eq!(got, expected, "{name}");
            // The kernel's own writes: `zeroed[i]`, and through pointers in initialised data elements 5 and 63.
            let written = zeroed.get().unwrap();
            assert_eq!((written[4], written[5], written[6]), (sum(4), sum(5) + 3.0, sum(6)), "{name}");
            assert_eq!((written[32], written[63]), (0.0, 3.0 * round), "{name}");
        }
    });
}

#[test]
fn a_variable_has_a_name_and_whole_elements() {
    let device = Device::open(DeviceKind::Sim).unwrap();
    let program = Program::load(&device, &read("features.12.6.85")).unwrap();
    let text = program.variable::<f32>("tops").unwrap_err().to_string();
    assert!(text.contains("no variable `tops`") && text.contains("`taps`"), "{text}");
    assert!(matches!(program.variable::<[u8; 8]>("taps"), Err(Error::Range(_))));
    let taps = program.variable::<f32>("taps").unwrap();
    assert!(matches!(taps.set(&[1.0; 4]), Err(Error::Range(_))));
    assert!(format!("{taps:?}").contains("constant: true"), "{taps:?}");
    // The variable keeps the program loaded.
    drop(program);
    assert_eq!(taps.get().unwrap(), TAPS);
}

#[test]
fn parts_of_variables_are_read_written_and_copied() {
    let device = Device::open(DeviceKind::Sim).unwrap();
    let program = Program::load(&device, &read("features.12.6.85")).unwrap();
    let taps = program.variable::<f32>("taps").unwrap();
    taps.set_part(3, &[9.0, 8.0]).unwrap();
    assert_eq!(taps.get_part(1..4).unwrap(), [TAPS[1], TAPS[2], 9.0]);
    assert_eq!(taps.get_part(5..).unwrap(), [0.0; 0]);
    assert_eq!(taps.get().unwrap(), [TAPS[0], TAPS[1], TAPS[2], 9.0, 8.0]);
    for refused in [
        taps.get_part(4..6).map(drop),
        taps.set_part(4, &[1.0; 2]),
        taps.slice(..6).map(drop),
        taps.slice_mut(6..).map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Range(RangeError::Outside { len: 5, .. }))), "{refused:?}");
    }

    // In the order of a queue, between launches that read and write variables.
    let mut queue = device.queue().unwrap();
    let kernel = program.kernel("variables").unwrap();
    let (launches, zeroed) =
        (program.variable::<u32>("launches").unwrap(), program.variable::<f32>("zeroed").unwrap());
    let out = device.alloc_zeroed::<f32>(32).unwrap();
    let gate = device.signal(0).unwrap();
    queue.wait_signal(&gate, 1).unwrap();
    let mut results = Vec::new();
    for launch in [100, 500] {
        queue.fill(launches.slice_mut(..).unwrap(), launch).unwrap();
        unsafe { queue.launch(&kernel, 1, 32, &args![&out, 3_i32]) }.unwrap();
        results.push((queue.download(zeroed.slice(4..5).unwrap()).unwrap(), queue.download(&out).unwrap()));
        queue.copy(zeroed.slice(4..5).unwrap(), taps.slice_mut(2..3).unwrap()).unwrap();
    }
    gate.set(1);
    let [first, second] = results.try_into().ok().unwrap();
    let wait = |(part, out): (Download<f32>, Download<f32>)| {
        (part.wait(TIMEOUT).unwrap()[0], out.wait(TIMEOUT).unwrap())
    };
    let ((one, before), (two, after)) = (wait(first), wait(second));
    assert_eq!((two - one, after[1] - before[1]), (400.0, 400.0), "the launches see what the queue wrote");
    assert_eq!(after[2] - before[2], 400.0 + one - TAPS[2], "and what it copied to a constant");
    queue.wait(TIMEOUT).unwrap();
    assert_eq!(taps.get_part(2..3).unwrap(), [two]);
}

/// Reading a variable waits for the launches that may write it.
#[test]
fn a_variable_waits_for_launches() {
    let device = Device::open(DeviceKind::Sim).unwrap();
    let program = Program::load(&device, &read("features.13.0.88")).unwrap();
    let zeroed = program.variable::<f32>("zeroed").unwrap();
    let out = device.alloc_zeroed::<f32>(32).unwrap();
    let mut queue = device.queue().unwrap();
    let kernel = program.kernel("variables").unwrap();
    unsafe { queue.launch(&kernel, 1, 32, &args![&out, 1_i32]) }.unwrap();
    assert!(matches!(zeroed.get(), Err(Error::NotSubmitted)));
    queue.submit().unwrap();
    assert_eq!(zeroed.get().unwrap()[63], 1.0);
}

#[test]
fn calls_direct_through_tables_and_recursive() {
    each(|name, device, program, queue| {
        let out = device.alloc_zeroed::<i32>(32).unwrap();
        let direct = run(queue, program, "direct", 32, &out, &[7, 100]);
        let expected: Vec<i32> = (0..32).map(|t| 107 + 100 - t).collect();
        assert_eq!(direct, expected, "{name}");
        let operations: [fn(i32, i32) -> i32; 3] = [|a, b| a + b, |a, b| a - b, |a, b| a * b];
        for which in 0..6 {
            let got = run(queue, program, "pointers", 32, &out, &[which as i32, 12, 5]);
            let constant = operations[[2, 0][which % 2]](12, 5);
            assert_eq!(got, vec![operations[which % 3](12, 5) * 1000 + constant; 32], "{name} {which}");
        }
        let fibonacci = run(queue, program, "recursive", 32, &out, &[9]);
        let expected: Vec<i32> = (0..32).map(|t| [34, 55][t % 2]).collect();
        assert_eq!(fibonacci, expected, "{name}");
    });
}

#[test]
fn jump_tables_local_memory_and_templates() {
    each(|name, device, program, queue| {
        let mut out = device.alloc_zeroed::<i32>(40).unwrap();
        let start: Vec<i32> = (0..40).map(|i| 3 * i + 2).collect();
        for case in 0..9 {
            out.copy_from_slice(&start).unwrap();
            let got = run(queue, program, "jump", 16, &out, &[case]);
            // One warp: every lane has read before any lane writes.
            let expected: Vec<i32> = (0..16_usize)
                .map(|lane| {
                    let v = lane as i32;
                    match case {
                        0 => v * 7 + 1,
                        1 => v ^ 0x55,
                        2 => start[lane] << 2,
                        3 => v - start[lane + 1],
                        4 => v.count_ones() as i32,
                        5 => v.reverse_bits(),
                        6 => v.leading_zeros() as i32,
                        7 => v * v * start[lane + 2],
                        _ => v,
                    }
                })
                .collect();
            assert_eq!(got[..16], expected, "{name} {case}");
            assert_eq!(got[16..], start[16..], "{name} {case}");
        }
        let local = run(queue, program, "local", 32, &out, &[11]);
        let sum: i32 = (0..11).map(|i| (i * 37 + 11) % 100 * 11).sum();
        assert_eq!(local[..32], [sum; 32], "{name}");
        let one = device.alloc_zeroed::<f32>(1).unwrap();
        assert_eq!(run(queue, program, "_Z7mangledIfEvPT_", 1, &one, &[]), [1.0], "{name}");
        let nothing = program.kernel("nothing").unwrap();
        unsafe { queue.launch(&nothing, 2, 64, &args![]) }.unwrap();
        queue.wait(TIMEOUT).unwrap();
    });
}

#[test]
fn shared_memory_static_and_dynamic_barriers_and_literals() {
    each(|name, device, program, queue| {
        let doubles = device.alloc_zeroed::<f64>(96).unwrap();
        // `struct Pair { char tag; double value; }` and `float3`.
        let pair = [[0_u8; 8], 2.5_f64.to_le_bytes()].concat();
        let offset = [0.25_f32, 9.0, 9.0].map(f32::to_le_bytes).concat();
        let arguments = args![4_u8, Arg::Bytes(&pair), Arg::Bytes(&offset), &doubles, -3_i16];
        let bounded = program.kernel("bounded").unwrap();
        unsafe { queue.launch(&bounded, 1, 96, &arguments) }.unwrap();
        queue.wait(TIMEOUT).unwrap();
        assert_eq!(doubles.to_vec().unwrap(), vec![10.0 + 0.12345678901234 + 0.25 - 3.0; 96], "{name}");
        assert!(unsafe { queue.launch(&bounded, 1, 97, &arguments) }.is_err(), "{name}");

        let out = device.alloc_zeroed::<i32>(64).unwrap();
        let dynamic = program.kernel("dynamic").unwrap();
        unsafe { queue.launch_with_shared(&dynamic, 1, 64, 64 * 4, &args![&out, 5_i32]) }.unwrap();
        queue.wait(TIMEOUT).unwrap();
        let expected: Vec<i32> = (0..64).map(|t| (t ^ 1) + 5 + 5).collect();
        assert_eq!(out.to_vec().unwrap(), expected, "{name}");
    });
}

#[test]
fn more_than_4_kib_of_parameters() {
    let device = Device::open(DeviceKind::Sim).unwrap();
    let mut queue = device.queue().unwrap();
    for name in ["large.12.6.85", "large.13.0.88"] {
        let program = Program::load(&device, &read(name)).unwrap();
        let kernel = program.kernel("large").unwrap();
        assert_eq!(kernel.parameter_sizes().collect::<Vec<_>>(), [8, 4400, 4]);
        let out = device.alloc_zeroed::<i32>(256).unwrap();
        let large: Vec<u8> = (0..1100_i32).flat_map(|i| (i * i).to_le_bytes()).collect();
        unsafe { queue.launch(&kernel, 1, 256, &args![&out, Arg::Bytes(&large), 7_i32]) }.unwrap();
        queue.wait(TIMEOUT).unwrap();
        let expected: Vec<i32> = (0..256).map(|i| i * i + 7).collect();
        assert_eq!(out.to_vec().unwrap(), expected, "{name}");
    }
}

#[test]
fn a_required_block_size_is_asked_for() {
    let device = Device::open(DeviceKind::Sim).unwrap();
    let program = Program::load(&device, &read("required.12.6.85")).unwrap();
    let kernel = program.kernel("required").unwrap();
    let out = device.alloc_zeroed::<i32>(64).unwrap();
    let mut queue = device.queue().unwrap();
    let text = unsafe { queue.launch(&kernel, 1, 64, &args![&out, 1_i32]) }.unwrap_err().to_string();
    assert!(text.contains("was compiled for blocks of 64x2x1"), "{text}");
    unsafe { queue.launch(&kernel, 1, (64, 2, 1), &args![&out, 1_i32]) }.unwrap();
    queue.wait(TIMEOUT).unwrap();
    assert_eq!(out.to_vec().unwrap(), (1..65).collect::<Vec<i32>>());
}

#[test]
fn a_constant_bank_that_a_descriptor_has_no_room_for_is_refused() {
    let device = Device::open(DeviceKind::Sim).unwrap();
    let mut cubin = read("features.12.6.85");
    let at = cubin.windows(14).position(|name| name == b".nv.constant3\0").unwrap();
    cubin[at + 12] = b'9';
    let text = Program::load(&device, &cubin).unwrap_err().to_string();
    assert!(text.contains("no element 9, the array has 8"), "{text}");
}
