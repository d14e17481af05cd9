//! Known properties of real cubins, compared with the parser's results. Sources and options: `tests/data`.

use cubin::{CONSTANT_ALIGN, Cubin, Error, Kernel, PREFETCH_SLACK_BYTES, Param, Space};

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("data/", $name, ".cubin"))
    };
}

/// A load address whose high half shows in a dump.
const BASE: u64 = 0x5a_1234_0000;

fn parse(bytes: &[u8]) -> Cubin {
    Cubin::parse(bytes).expect("a good cubin")
}

fn params(kernel: &Kernel) -> Vec<(u16, u16)> {
    kernel.params.iter().map(|&Param { offset, bytes, .. }| (offset, bytes)).collect()
}

fn u64_in(image: &[u8], offset: u64) -> u64 {
    let at = usize::try_from(offset).unwrap();
    u64::from_le_bytes(image[at..at + 8].try_into().unwrap())
}

fn u32_in(image: &[u8], offset: u64) -> u32 {
    let at = usize::try_from(offset).unwrap();
    u32::from_le_bytes(image[at..at + 4].try_into().unwrap())
}

#[test]
fn limits_of_a_kernel() {
    let cubin = parse(data!("limits"));
    assert_eq!(cubin.sm(), 87);
    let names: Vec<_> = cubin.kernels().iter().map(|k| k.name.as_str()).collect();
    assert_eq!(names, ["bounded", "local", "nothing"]);

    let bounded = cubin.kernel("bounded").unwrap();
    assert_eq!(bounded.max_threads, Some([96, 1, 1]));
    assert_eq!(bounded.required_threads, None);
    assert_eq!(bounded.shared_bytes, 33 * 8);
    assert_eq!(bounded.barriers, 5, "barriers 0 to 4");
    // unsigned char, double, three floats, pointer: natural alignment.
    assert_eq!(params(bounded), [(0, 1), (8, 8), (16, 12), (32, 8)]);
    assert_eq!((bounded.param_base, bounded.param_bytes), (0x160, 40));
    assert_eq!(bounded.constant0_bytes, 0x160 + 40);
    let literals = bounded.constant(2).expect("a double literal is in bank 2");
    let image = cubin.image_at(BASE).unwrap();
    assert_eq!(f64::from_bits(u64_in(&image, literals.offset)), 0.12345678901234);

    let local = cubin.kernel("local").unwrap();
    assert_eq!((local.local_bytes, local.unbounded_stack), (400, false));
    assert_eq!(local.stack_bytes(Kernel::DEFAULT_STACK_LIMIT), 400);
    assert!(local.constant(2).is_none());

    let nothing = cubin.kernel("nothing").unwrap();
    assert_eq!((nothing.param_base, nothing.param_bytes, nothing.params.len()), (0x160, 0, 0));
    assert_eq!((nothing.local_bytes, nothing.shared_bytes, nothing.barriers), (0, 0, 0));
    assert!(nothing.registers >= 4 && nothing.max_threads.is_none());
}

#[test]
fn code_is_aligned_and_does_not_overlap() {
    for bytes in [&data!("calls")[..], data!("debug"), data!("globals"), data!("limits")] {
        let cubin = parse(bytes);
        let mut kernels: Vec<_> = cubin.kernels().iter().collect();
        kernels.sort_by_key(|k| k.code_offset);
        for pair in kernels.windows(2) {
            assert!(pair[0].code_offset + pair[0].code_bytes <= pair[1].code_offset);
        }
        let image = cubin.image_at(BASE).unwrap();
        for kernel in kernels {
            assert_eq!(kernel.code_offset % 128, 0);
            assert_eq!(kernel.code_bytes % 16, 0);
            assert!(kernel.code_offset + kernel.code_bytes + PREFETCH_SLACK_BYTES <= cubin.image_bytes());
            // The code in the file, by its own words: it occurs there as it is, but for relocations.
            let at = usize::try_from(kernel.code_offset).unwrap();
            let first = &image[at..at + 16];
            assert!(bytes.windows(16).any(|w| w == first));
            for constant in &kernel.constants {
                assert_eq!(constant.offset % CONSTANT_ALIGN, 0);
                let end = constant.offset + u64::from(constant.bytes);
                assert!(end.next_multiple_of(CONSTANT_ALIGN) <= cubin.image_bytes());
            }
        }
    }
}

#[test]
fn variables_and_their_addresses() {
    let cubin = parse(data!("globals"));
    let image = cubin.image_at(BASE).unwrap();
    let names: Vec<_> = cubin.globals().iter().map(|g| (g.name.as_str(), g.space, g.bytes)).collect();
    assert_eq!(
        names,
        [
            ("counter", Space::Global, 8),
            ("launches", Space::Global, 4),
            ("palette", Space::Constant, 64),
            ("primes", Space::Global, 32),
            ("taps", Space::Constant, 20),
            ("zeroed", Space::Global, 256),
        ]
    );
    assert!(cubin.global("palett").is_none() && cubin.global("palettes").is_none());
    let offset = |name: &str| cubin.global(name).unwrap().offset;
    let primes: Vec<_> = (0..8).map(|i| u32_in(&image, offset("primes") + 4 * i)).collect();
    assert_eq!(primes, [2, 3, 5, 7, 11, 13, 17, 19]);
    assert!((0..64).all(|i| u32_in(&image, offset("zeroed") + 4 * i) == 0));
    // A pointer in initialised data (relocation type 4).
    assert_eq!(u64_in(&image, offset("counter")), BASE + offset("launches"));

    // Bank 3 holds the constants; bank 4 the addresses of all variables (relocation type 2).
    let kernel = cubin.kernel("look_up").unwrap();
    let bank3 = kernel.constant(3).unwrap();
    assert_eq!(bank3.bytes, 84);
    assert_eq!((offset("taps"), offset("palette")), (bank3.offset, bank3.offset + 20));
    let bank4 = kernel.constant(4).unwrap();
    let mut addresses: Vec<_> = (0..4).map(|i| u64_in(&image, bank4.offset + 8 * i) - BASE).collect();
    let mut variables = ["counter", "launches", "primes", "zeroed"].map(offset);
    addresses.sort_unstable();
    variables.sort_unstable();
    assert_eq!(addresses, variables);
    // The module's banks are those of every kernel.
    assert!(cubin.kernels().iter().all(|k| k.constant(3) == Some(bank3) && k.constant(4) == Some(bank4)));
}

/// 64-bit addresses that two consecutive 32-bit moves (opcode 0x802) load, low half first.
fn moved_addresses(image: &[u8]) -> Vec<u64> {
    let words: Vec<_> = image.chunks_exact(16).map(|w| (w[0], w[1] & 0xf, u32_in(w, 4))).collect();
    let is_move = |(low, high, _): (u8, u8, u32)| low == 0x02 && high == 0x8;
    let pairs = words.windows(2).filter(|pair| is_move(pair[0]) && is_move(pair[1]));
    pairs
        .map(|pair| u64::from(pair[1].2) << 32 | u64::from(pair[0].2))
        .filter(|a| a >> 36 == BASE >> 36)
        .collect()
}

/// Targets of the absolute calls (opcode 0x943).
fn call_targets(image: &[u8]) -> Vec<u64> {
    image
        .chunks_exact(16)
        .map(|w| u128::from_le_bytes(w.try_into().unwrap()))
        .filter(|w| w & 0xfff == 0x943)
        .map(|w| (w >> 34) as u64 & ((1 << 47) - 1))
        .map(|field| field << 2)
        .collect()
}

#[test]
fn addresses_inside_of_instructions() {
    let cubin = parse(data!("debug"));
    let image = cubin.image_at(BASE).unwrap();
    let direct = cubin.kernel("direct").unwrap();
    let recursive = cubin.kernel("recursive").unwrap();
    let code = |k: &Kernel| &image[k.code_offset as usize..][..k.code_bytes as usize];
    let in_kernel = |va: u64| {
        let at = va - BASE;
        cubin.kernels().iter().any(|k| (k.code_offset..k.code_offset + k.code_bytes).contains(&at))
    };

    // Variables (types 56 and 57 without an addend), and the return address (with one).
    let moved = moved_addresses(code(direct));
    for name in ["words", "middle", "ends"] {
        let va = BASE + cubin.global(name).unwrap().offset;
        assert!(moved.contains(&va), "{name}: {moved:x?}");
    }
    // A call (type 58) jumps to a separate function, and returns after the call.
    for kernel in [direct, recursive] {
        let targets = call_targets(code(kernel));
        assert_eq!(targets.len(), 1);
        assert!(targets[0] >= BASE && !in_kernel(targets[0]), "{targets:x?}");
        assert_eq!(targets[0] % 128, 0);
        let call = code(kernel).chunks_exact(16).position(|w| w[0] == 0x43 && w[1] & 0xf == 9).unwrap();
        let back = BASE + kernel.code_offset + 16 * (call as u64 + 1);
        assert!(moved_addresses(code(kernel)).contains(&back), "{back:#x}");
    }
    assert_ne!(call_targets(code(direct)), call_targets(code(recursive)));

    // Pointers in data, with addends.
    let offset = |name: &str| cubin.global(name).unwrap().offset;
    assert_eq!(u64_in(&image, offset("middle")), BASE + offset("words") + 7 * 4);
    assert_eq!(u64_in(&image, offset("ends")), BASE + offset("scratch") + 5 * 4);
    assert_eq!(u64_in(&image, offset("ends") + 8), BASE + offset("words") + 63 * 4);
}

#[test]
fn stacks_without_a_limit_are_marked() {
    let debug = parse(data!("debug"));
    assert!(!debug.kernel("direct").unwrap().unbounded_stack);
    assert!(debug.kernel("recursive").unwrap().unbounded_stack);

    let calls = parse(data!("calls"));
    let fibonacci = calls.kernel("call_fibonacci").unwrap();
    assert!(fibonacci.unbounded_stack);
    assert!(fibonacci.local_bytes > 0 && fibonacci.local_bytes < 256, "{}", fibonacci.local_bytes);
    assert_eq!(fibonacci.stack_bytes(1024), 1024);
    assert!(!calls.kernel("call_mix").unwrap().unbounded_stack);
    // The table of functions: offsets of the three in the kernel's code, after a placeholder.
    let pointer = calls.kernel("call_pointer").unwrap();
    let table = pointer.constant(2).unwrap();
    let image = calls.image_at(BASE).unwrap();
    let entries: Vec<_> = (0..4).map(|i| u64_in(&image, table.offset + 8 * i)).collect();
    assert_eq!((table.bytes, entries[0]), (32, 1));
    assert!(entries[1..].iter().all(|&e| e % 16 == 0 && e < pointer.code_bytes), "{entries:x?}");
}

#[test]
fn other_architectures() {
    let orin = parse(data!("tiny"));
    orin.check_arch(87).unwrap();
    let ampere = parse(data!("tiny.sm_80"));
    assert_eq!(ampere.sm(), 80);
    ampere.check_arch(86).unwrap();
    let text = ampere.check_arch(87).unwrap_err().to_string();
    assert!(text.contains("sm_80") && text.contains("sm_87"), "{text}");

    let hopper = parse(data!("tiny.sm_90"));
    assert_eq!((hopper.sm(), hopper.is_accelerated()), (90, false));
    hopper.check_arch(90).unwrap();
    let text = hopper.check_arch(87).unwrap_err().to_string();
    assert!(text.starts_with("compiled for sm_90, the GPU is sm_87"), "{text}");
    let kernel = hopper.kernel("tiny").unwrap();
    assert_eq!((kernel.param_base, kernel.registers), (0x210, 10));
    assert_eq!(params(kernel), [(0, 8), (8, 4)]);
    assert!(parse(data!("tiny.sm_90a")).is_accelerated());
}

/// Toolkit 13 writes another header and other attributes; what a launch needs is the same.
#[test]
fn cubins_of_other_compilers_say_the_same() {
    let (old, new) = (parse(data!("limits")), parse(data!("limits.13_0")));
    assert_eq!((new.sm(), new.is_accelerated()), (87, false));
    for kernel in old.kernels() {
        let same = new.kernel(&kernel.name).unwrap();
        assert_eq!(same.barriers, kernel.barriers, "{}", kernel.name);
        assert_eq!(same.shared_bytes, kernel.shared_bytes, "{}", kernel.name);
        assert_eq!(same.max_threads, kernel.max_threads, "{}", kernel.name);
        assert_eq!((same.param_base, &same.params), (kernel.param_base, &kernel.params), "{}", kernel.name);
        assert_eq!(same.local_bytes, kernel.local_bytes, "{}", kernel.name);
        assert_eq!(same.constants.len(), kernel.constants.len(), "{}", kernel.name);
    }
    let (old, new) = (parse(data!("globals")), parse(data!("globals.13_0")));
    let names = |cubin: &Cubin| cubin.globals().iter().map(|g| (g.name.clone(), g.bytes)).collect::<Vec<_>>();
    assert_eq!(names(&new), names(&old));
    let image = new.image_at(BASE).unwrap();
    assert_eq!(u32_in(&image, new.global("launches").unwrap().offset), 41);
    let accelerated = parse(data!("tiny.sm_90a.13_0"));
    assert_eq!((accelerated.sm(), accelerated.is_accelerated()), (90, true));
    for reduce in [parse(data!("reduce.12_2")), parse(data!("reduce.13_0"))] {
        assert_eq!(reduce.kernel("reduce_sum_f32").unwrap().barriers, 1);
        reduce.check_arch(87).unwrap();
    }
}

#[test]
fn what_cannot_be_loaded_says_why() {
    let error = |bytes: &[u8]| Cubin::parse(bytes).unwrap_err();
    assert_eq!(error(data!("tiny.relocatable")), Error::Relocatable);
    assert!(error(data!("tiny.relocatable")).to_string().contains("--relocatable-device-code"));
    let mut printf = parse(data!("printf"));
    match printf.image_at(BASE).unwrap_err() {
        Error::UnresolvedSymbol { symbol, undefined, .. } => {
            assert_eq!((&*symbol, undefined), ("vprintf", true))
        }
        other => panic!("{other}"),
    }
    // Its address is a word of constant bank 4, outside of the image.
    const ADDRESS: u64 = 0x12_3456_7800;
    printf.define("vprintf", ADDRESS);
    assert_eq!(printf.undefined().count(), 0);
    let bank = printf.kernels()[0].constant(4).unwrap();
    let image = printf.image_at(BASE).unwrap();
    let words = image[bank.offset as usize..][..bank.bytes as usize].chunks_exact(8);
    assert_eq!(words.filter(|word| **word == ADDRESS.to_le_bytes()).count(), 1);
    assert_eq!(Cubin::parse_object(data!("printf")).unwrap_err(), Error::UnexpectedType { e_type: 2 });
    for (bytes, hint) in [
        (&b""[..], "empty"),
        (b"\x7fEL", "binary data"),
        (b"//\n// Generated by NVIDIA NVVM Compiler\n.version 8.5", "`orin compile FILE.ptx`"),
        (b"\x50\xed\x55\xba\x01\x00\x10\x00", "`orin decode cubin` lists"),
    ] {
        assert!(error(bytes).to_string().contains(hint), "{}", error(bytes));
    }
}

#[test]
fn objects_of_functions_are_images() {
    for (file, sm) in [
        (&include_bytes!("../../../kernels/runtime/functions.cubin")[..], 87),
        (include_bytes!("../../../kernels/sm_90/runtime/functions.cubin"), 90),
    ] {
        let object = Cubin::parse_object(file).unwrap();
        assert_eq!((object.sm(), object.kernels().len(), object.undefined().count()), (sm, 0, 0));
        let function = |name: &str| object.functions().iter().find(|one| one.name == name).unwrap();
        assert!(
            ["orin_vprintf", "orin_malloc"].iter().all(|name| (17..=32).contains(&function(name).registers))
        );
        // Spilled registers.
        assert!(function("orin_vprintf").frame_bytes >= 16);
        let image = object.image_at(BASE).unwrap();
        assert!(object.relocated().all(|at| at < image.len() as u64));
    }
}

#[test]
fn an_unknown_kernel_lists_the_known_ones() {
    let text = parse(data!("limits")).kernel("bounds").unwrap_err().to_string();
    assert_eq!(text, "no kernel `bounds` in the cubin; its kernels: `bounded`, `local`, `nothing`");
}

#[test]
fn load_addresses() {
    let cubin = parse(data!("globals"));
    let align = cubin.image_align();
    assert!(align.is_power_of_two() && align >= CONSTANT_ALIGN);
    let bad = |va| matches!(cubin.image_at(va), Err(Error::BadBase { .. }));
    assert!(bad(BASE + align / 2));
    assert!(bad((1 << 49) - align) && bad(u64::MAX - align + 1));
    let highest = ((1u64 << 49) - cubin.image_bytes()) & !(align - 1);
    assert!(cubin.image_at(highest).is_ok());
    assert!(cubin.image_at(0).is_ok());

    let mut image = vec![0xee; usize::try_from(cubin.image_bytes()).unwrap()];
    cubin.write_image(BASE, &mut image).unwrap();
    assert_eq!(image, cubin.image_at(BASE).unwrap());
    assert!(matches!(cubin.write_image(BASE, &mut image[1..]), Err(Error::WrongImageLength { .. })));
}

/// Two load addresses differ in the image by their distance, at the relocated places and nowhere else.
#[test]
fn an_image_depends_on_its_address_only_by_relocation() {
    let cubin = parse(data!("globals"));
    let (a, b) = (cubin.image_at(BASE).unwrap(), cubin.image_at(BASE + 0x10_0000).unwrap());
    let mut moved = 0;
    for (i, (a, b)) in a.chunks_exact(8).zip(b.chunks_exact(8)).enumerate() {
        if a != b {
            assert_eq!(u64_in(b, 0) - u64_in(a, 0), 0x10_0000, "at {:#x}", 8 * i);
            moved += 1;
        }
    }
    assert_eq!(moved, 5, "four entries of bank 4 and one pointer");
}
