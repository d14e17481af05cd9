//! One source with every feature that a loader handles, from every compiler version and for every architecture.
//!
//! `data/features` has the sources, the cubins and the script that made them. What the compiler is free to
//! choose (registers, code) is not asserted; what a launch depends on is, for every file.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use cubin::{Contents, Cubin, Kernel, Param, Space};

/// A load address whose high half shows.
const BASE: u64 = 0x5a_1234_0000;

const VERSIONS: [&str; 4] = ["12.2.140", "12.6.85", "12.9.86", "13.0.88"];

/// A cubin of the folder, with what its name says.
struct File {
    name: String,
    sm: u32,
    bytes: Vec<u8>,
}

/// The files whose names begin with `kind`: `KIND.VERSION.sm_NN.cubin`.
fn files(kind: &str) -> Vec<File> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/features");
    let mut names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(&format!("{kind}.")) && name.ends_with(".cubin"))
        .collect();
    names.sort();
    let read = |name: String| File {
        sm: name.split_once("sm_").unwrap().1.trim_end_matches(".cubin").parse().unwrap(),
        bytes: fs::read(folder.join(&name)).unwrap(),
        name,
    };
    names.into_iter().map(read).collect()
}

/// A parsed cubin with its image.
struct Loaded {
    file: File,
    cubin: Cubin,
    image: Vec<u8>,
}

impl Loaded {
    fn new(file: File) -> Self {
        let cubin = Cubin::parse(&file.bytes).unwrap_or_else(|error| panic!("{}: {error}", file.name));
        assert_eq!(cubin.sm(), file.sm, "{}", file.name);
        let image = cubin.image_at(BASE).unwrap();
        Self { file, cubin, image }
    }

    fn all(kind: &str) -> impl Iterator<Item = Self> {
        files(kind).into_iter().map(Self::new)
    }

    /// The cubins of `features.cu`: whole programs and linked ones.
    fn features() -> impl Iterator<Item = Self> {
        Self::all("features").chain(Self::all("linked"))
    }

    fn is_linked(&self) -> bool {
        self.file.name.starts_with("linked.")
    }

    fn kernel(&self, name: &str) -> &Kernel {
        self.cubin.kernel(name).unwrap_or_else(|error| panic!("{}: {error}", self.file.name))
    }

    /// Where parameters begin in constant bank 0.
    fn param_base(&self) -> u32 {
        if self.file.sm == 90 { 0x210 } else { 0x160 }
    }

    fn offset(&self, global: &str) -> u64 {
        self.cubin.global(global).unwrap_or_else(|| panic!("{}: no {global}", self.file.name)).offset
    }

    fn u64_at(&self, offset: u64) -> u64 {
        let at = usize::try_from(offset).unwrap();
        u64::from_le_bytes(self.image[at..at + 8].try_into().unwrap())
    }

    fn u32_at(&self, offset: u64) -> u32 {
        let at = usize::try_from(offset).unwrap();
        u32::from_le_bytes(self.image[at..at + 4].try_into().unwrap())
    }

    fn code(&self, kernel: &Kernel) -> impl Iterator<Item = u128> {
        let at = usize::try_from(kernel.code_offset).unwrap();
        let code = &self.image[at..at + usize::try_from(kernel.code_bytes).unwrap()];
        code.chunks_exact(16).map(|word| u128::from_le_bytes(word.try_into().unwrap()))
    }
}

fn params(kernel: &Kernel) -> Vec<(u16, u16)> {
    kernel.params.iter().map(|&Param { offset, bytes, .. }| (offset, bytes)).collect()
}

#[test]
fn every_version_and_architecture_is_there() {
    let names = |kind| files(kind).into_iter().map(|file| file.name).collect::<Vec<_>>();
    let mut expected: Vec<String> = VERSIONS
        .iter()
        .flat_map(|version| [80, 86, 87, 90].map(|sm| format!("features.{version}.sm_{sm}.cubin")))
        .collect();
    expected.sort();
    assert_eq!(names("features"), expected);
    for kind in ["linked", "large"] {
        let expected = ["12.6.85.sm_87", "12.6.85.sm_90", "13.0.88.sm_87", "13.0.88.sm_90"];
        assert_eq!(names(kind), expected.map(|name| format!("{kind}.{name}.cubin")));
    }
    assert_eq!(names("required").len(), 2);
}

#[test]
fn kernels_and_their_parameters() {
    for loaded in Loaded::features() {
        let name = &loaded.file.name;
        let mut expected = vec![
            "_Z7mangledIfEvPT_",
            "bounded",
            "direct",
            "dynamic",
            "jump",
            "local",
            "nothing",
            "pointers",
            "recursive",
            "variables",
        ];
        if loaded.file.sm == 90 {
            expected.insert(2, "clustered");
        }
        let kernels: Vec<&str> = loaded.cubin.kernels().iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(kernels, expected, "{name}");
        for kernel in loaded.cubin.kernels() {
            assert_eq!(kernel.param_base, loaded.param_base(), "{name} {}", kernel.name);
            assert_eq!(kernel.constant0_bytes, kernel.param_base + kernel.param_bytes, "{name}");
            assert!((4..=255).contains(&kernel.registers), "{name} {}", kernel.name);
            let cluster = (kernel.name == "clustered").then_some([2, 1, 1]);
            assert_eq!(kernel.cluster, cluster, "{name} {}", kernel.name);
            assert_eq!(kernel.code_offset % 128, 0, "{name} {}", kernel.name);
        }
        // A byte, a structure of 16, three floats, a pointer, a half word: natural alignment.
        let bounded = [(0, 1), (8, 16), (24, 12), (40, 8), (48, 2)];
        assert_eq!(params(loaded.kernel("bounded")), bounded, "{name}");
        assert_eq!(params(loaded.kernel("pointers")), [(0, 8), (8, 4), (12, 4), (16, 4)], "{name}");
        assert_eq!(params(loaded.kernel("_Z7mangledIfEvPT_")), [(0, 8)], "{name}");
        assert_eq!(loaded.kernel("nothing").param_bytes, 0, "{name}");
    }
}

#[test]
fn limits_shared_memory_and_barriers() {
    for loaded in Loaded::features() {
        let name = &loaded.file.name;
        let bounded = loaded.kernel("bounded");
        assert_eq!(bounded.max_threads, Some([96, 1, 1]), "{name}");
        assert_eq!((bounded.required_threads, bounded.barriers), (None, 5), "{name}");
        assert_eq!(loaded.kernel("dynamic").barriers, 1, "{name}");
        assert_eq!(loaded.kernel("local").barriers, 0, "{name}");
        // Code for sm_90 counts the KiB that the system has of each CTA's shared memory; the compiler rounds up
        // to 16 at most.
        let reserved = if loaded.file.sm == 90 { 1024 } else { 0 };
        let shared = |kernel: &str| loaded.kernel(kernel).shared_bytes;
        let rounded = |bytes: u32| reserved + bytes..=reserved + bytes.next_multiple_of(16);
        assert!(rounded(33 * 8).contains(&shared("bounded")), "{name}: {}", shared("bounded"));
        assert!(rounded(3 * 4).contains(&shared("dynamic")), "{name}: {}", shared("dynamic"));
        assert!([0, reserved].contains(&shared("local")), "{name}: {}", shared("local"));
    }
    for loaded in Loaded::all("required") {
        let required = loaded.kernel("required");
        assert_eq!(required.required_threads, Some([64, 2, 1]), "{}", loaded.file.name);
        assert_eq!((required.max_threads, required.barriers), (None, 8), "{}", loaded.file.name);
        assert!(required.registers <= 40);
        assert_eq!(required.param_base, loaded.param_base(), "{}", loaded.file.name);
    }
}

#[test]
fn stacks() {
    for loaded in Loaded::features() {
        let name = &loaded.file.name;
        let stack = |kernel: &str| {
            let kernel = loaded.kernel(kernel);
            (kernel.local_bytes, kernel.unbounded_stack)
        };
        assert_eq!(stack("local"), (400, false), "{name}");
        for kernel in ["nothing", "bounded", "dynamic", "variables", "jump", "direct"] {
            assert_eq!(stack(kernel), (0, false), "{name} {kernel}");
        }
        assert!(stack("recursive").1, "{name}: recursion has no limit");
        assert_eq!(loaded.kernel("recursive").stack_bytes(1024), 1024, "{name}");
        if loaded.is_linked() {
            assert!(stack("pointers").1, "{name}: anything may be called");
        } else {
            // The frame of `fibonacci`, which some compilers do not record, is in the code.
            assert_eq!(stack("recursive").0, 24, "{name}");
        }
    }
}

#[test]
fn variables_and_pointers_to_them() {
    for loaded in Loaded::features() {
        let name = &loaded.file.name;
        let (primes, zeroed) = (loaded.offset("primes"), loaded.offset("zeroed"));
        let values: Vec<u32> = (0..8).map(|i| loaded.u32_at(primes + 4 * i)).collect();
        assert_eq!(values, [2, 3, 5, 7, 11, 13, 17, 19], "{name}");
        assert_eq!(loaded.u32_at(loaded.offset("launches")), 41, "{name}");
        assert!((0..64).all(|i| loaded.u32_at(zeroed + 4 * i) == 0), "{name}");
        // Pointers with addends, in global and in constant memory, aligned and not.
        assert_eq!(loaded.u64_at(loaded.offset("middle")), BASE + primes + 3 * 4, "{name}");
        assert_eq!(loaded.u64_at(loaded.offset("ends")), BASE + zeroed + 5 * 4, "{name}");
        assert_eq!(loaded.u64_at(loaded.offset("ends") + 8), BASE + zeroed + 63 * 4, "{name}");
        assert_eq!(loaded.u64_at(loaded.offset("into_primes")), BASE + primes + 5 * 4, "{name}");
        let packed = loaded.offset("packed");
        assert_eq!(loaded.image[packed as usize], 0x5a, "{name}");
        assert_eq!(loaded.u64_at(packed + 1), BASE + primes + 6 * 4, "{name}");

        let bank3 = loaded.kernel("variables").constant(3).unwrap();
        let space = |global: &str| loaded.cubin.global(global).unwrap().space;
        for (global, bytes) in
            [("taps", 20), ("palette", 64), ("into_primes", 8), ("constant_operations", 16)]
        {
            assert_eq!(space(global), Space::Constant, "{name} {global}");
            let inside = bank3.offset..bank3.offset + u64::from(bank3.bytes);
            assert!(inside.contains(&loaded.offset(global)), "{name} {global}");
            assert_eq!(loaded.cubin.global(global).unwrap().bytes, bytes, "{name} {global}");
        }
        assert_eq!(space("primes"), Space::Global, "{name}");
        assert_eq!(f32::from_bits(loaded.u32_at(loaded.offset("taps") + 8)), 0.375, "{name}");
        // Every kernel sees the module's banks.
        assert!(loaded.cubin.kernels().iter().all(|kernel| kernel.constant(3) == Some(bank3)), "{name}");
    }
}

/// Kernels find global variables through bank 4, or through the two halves of an address in their instructions.
#[test]
fn addresses_of_variables() {
    let variables = ["primes", "launches", "zeroed", "middle", "ends", "packed"];
    let mut through_bank = 0;
    for loaded in Loaded::features() {
        let name = &loaded.file.name;
        let kernel = loaded.kernel("variables");
        let addresses = variables.map(|variable| BASE + loaded.offset(variable));
        if let Some(bank) = kernel.constant(4) {
            through_bank += 1;
            let found: Vec<u64> =
                (0..u64::from(bank.bytes) / 8).map(|i| loaded.u64_at(bank.offset + 8 * i)).collect();
            assert!(addresses.iter().all(|address| found.contains(address)), "{name}: {found:x?}");
        } else {
            let immediates: BTreeSet<u32> = loaded.code(kernel).map(|word| (word >> 32) as u32).collect();
            for address in addresses {
                let halves = [address as u32, (address >> 32) as u32];
                assert!(halves.iter().all(|half| immediates.contains(half)), "{name}: {address:#x}");
            }
        }
    }
    assert!(through_bank > 0 && through_bank < 20, "both ways occur: {through_bank}");
}

/// The target of a call or the distance of a branch: the field of sm_8x, or of sm_90.
fn target(sm: u32, word: u128) -> u64 {
    let high = (word >> 34) as u64 & ((1 << 47) - 1);
    match sm {
        90 => (high << 8 | (word >> 16) as u64 & 0xff) << 2,
        _ => high << 2,
    }
}

#[test]
fn calls() {
    const CALL_ABS: u128 = 0x943;
    const CALL_REL: u128 = 0x944;
    for loaded in Loaded::features() {
        let name = &loaded.file.name;
        let direct = loaded.kernel("direct");
        let inside = direct.code_offset..direct.code_offset + direct.code_bytes;
        let opcode = if loaded.is_linked() { CALL_ABS } else { CALL_REL };
        let calls = loaded.code(direct).zip((0..).step_by(16)).filter(|(word, _)| word & 0xfff == opcode);
        let targets: BTreeSet<u64> = calls
            .map(|(word, at)| match opcode {
                CALL_ABS => target(loaded.file.sm, word) - BASE,
                _ => direct.code_offset + at + 16 + target(loaded.file.sm, word),
            })
            .collect();
        assert_eq!(targets.len(), 2, "{name}: add and subtract");
        for place in &targets {
            assert_eq!(inside.contains(place), !loaded.is_linked(), "{name} {place:#x}");
            assert_eq!(place % 16, 0, "{name} {place:#x}");
            let word = loaded.u32_at(*place);
            assert_ne!(word, 0, "{name}: no code at {place:#x}");
        }
        if loaded.is_linked() {
            // The functions' own addresses are in both tables of pointers.
            let table = |global: &str, count: u64| {
                let at = loaded.offset(global);
                (0..count).map(|i| loaded.u64_at(at + 8 * i) - BASE).collect::<Vec<_>>()
            };
            let operations = table("operations", 3);
            assert_eq!(targets, BTreeSet::from([operations[0], operations[1]]), "{name}");
            assert_eq!(table("constant_operations", 2), [operations[2], operations[0]], "{name}");
        }
    }
}

/// In a whole program a function's pointer is an offset in the kernel's bank 2, where offsets in the kernel's
/// code stand. The first is a placeholder, so that no pointer is null.
#[test]
fn function_pointers_of_whole_programs() {
    for loaded in Loaded::all("features") {
        let name = &loaded.file.name;
        let kernel = loaded.kernel("pointers");
        let bank = kernel.constant(2).unwrap();
        assert_eq!(loaded.u64_at(bank.offset), 1, "{name}");
        let at = loaded.offset("operations");
        let functions: BTreeSet<u64> = (0..3)
            .map(|i| {
                let pointer = loaded.u64_at(at + 8 * i);
                assert!(pointer % 8 == 0 && pointer + 8 <= u64::from(bank.bytes), "{name} {pointer:#x}");
                loaded.u64_at(bank.offset + pointer)
            })
            .collect();
        assert_eq!(functions.len(), 3, "{name}");
        assert!(functions.iter().all(|f| f % 16 == 0 && (1..kernel.code_bytes).contains(f)), "{name}");
        // The table in constant memory has the same: multiply, add.
        let constant = loaded.offset("constant_operations");
        let same = [loaded.u64_at(at + 16), loaded.u64_at(at)];
        assert_eq!([loaded.u64_at(constant), loaded.u64_at(constant + 8)], same, "{name}");
    }
}

/// Literals of double precision are in bank 2 on sm_8x.
#[test]
fn literals() {
    for loaded in Loaded::features().filter(|loaded| loaded.file.sm < 90) {
        let bank = loaded.kernel("bounded").constant(2).unwrap();
        let literal = f64::from_bits(loaded.u64_at(bank.offset));
        assert_eq!(literal, 0.12345678901234, "{}", loaded.file.name);
    }
}

#[test]
fn more_than_4_kib_of_parameters() {
    for loaded in Loaded::all("large") {
        let (name, kernel) = (&loaded.file.name, loaded.kernel("large"));
        assert_eq!(params(kernel), [(0, 8), (8, 4400), (4408, 4)], "{name}");
        let base = if loaded.file.sm == 90 { 0x210 } else { 0x1a80 };
        assert_eq!((kernel.param_base, kernel.param_bytes), (base, 4412), "{name}");
        assert_eq!(kernel.constant0_bytes, base + 4412, "{name}");
    }
}

/// Constant banks have numbers up to 17 in the format; which of them a GPU has room for is the launch's affair.
#[test]
fn constant_banks_of_other_numbers() {
    for file in files("features") {
        let mut bytes = file.bytes.clone();
        let bank3 = b".nv.constant3\0";
        let at = bytes.windows(bank3.len()).position(|name| name == bank3).unwrap();
        bytes[at + bank3.len() - 2] = b'9';
        let cubin = Cubin::parse(&bytes).unwrap();
        let moved =
            cubin.kernels().iter().all(|kernel| kernel.constant(9).is_some() && kernel.constant(3).is_none());
        assert!(moved, "{}", file.name);
    }
}

/// Each kind of relocation that these compilers were seen to write is in some file.
#[test]
fn relocations_have_names_and_are_of_every_kind_met() {
    let mut met = BTreeSet::new();
    for file in ["features", "linked", "large", "required"].into_iter().flat_map(files) {
        let contents = Contents::read(&file.bytes).unwrap();
        for relocation in &contents.relocations {
            assert!(relocation.name().is_some(), "{}: type {}", file.name, relocation.kind);
            if !contents.sections[relocation.section].name.starts_with(".debug") {
                met.insert(relocation.kind);
            }
        }
        let unnamed = contents.attributes.iter().find(|attribute| attribute.name().is_none());
        assert!(unnamed.is_none(), "{}: {unnamed:?}", file.name);
    }
    let expected = [2, 4, 56, 57, 58, 75, 84, 85, 86, 87, 88, 89, 90, 91];
    assert_eq!(met, BTreeSet::from(expected));
}
