//! Calls of every function of the table with arguments that are wrong in one place each, and in each state of the
//! library. No call may crash, hang or panic (999).

use core::ffi::c_void;
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use cuda::TABLE;

use crate::support::*;

/// A function, with a word for each argument. A function ignores those that it does not declare.
type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u32;

/// Words for the arguments.
pub(crate) type Words = [u64; 12];

/// Addresses of all functions.
static FUNCTIONS: LazyLock<HashMap<&str, Function>> = LazyLock::new(|| {
    // SAFETY: the functions return a number and take words only, in registers or where the caller put them.
    let of = |address: *const c_void| unsafe { core::mem::transmute::<*const c_void, Function>(address) };
    TABLE.iter().map(|entry| (entry.symbol, of(entry.address()))).collect()
});

/// The functions of `parameters.txt` with the kinds of their parameters.
fn parameters() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("../parameters.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').unwrap_or((line, "")))
}

/// The functions that take a handle of another process, and the place of the handle.
static HANDLES: LazyLock<HashMap<&str, usize>> =
    LazyLock::new(|| parameters().filter_map(|(symbol, kinds)| Some((symbol, kinds.find('V')?))).collect());

/// The implemented functions, with the kinds of their parameters (`parameters.txt` explains the letters).
pub(crate) fn implemented() -> Vec<(&'static str, &'static str)> {
    let kinds: HashMap<_, _> = parameters().collect();
    // Not the one that writes a file.
    let implemented =
        TABLE.iter().filter(|entry| entry.missing.is_none() && entry.symbol != "cuGraphDebugDotPrint");
    implemented
        .map(|entry| (entry.symbol, *kinds.get(entry.symbol).expect("parameters.txt has every function")))
        .collect()
}

/// Calls a function with words, and the rest zero.
pub(crate) fn call<const N: usize>(symbol: &str, words: [u64; N]) -> u32 {
    let mut all = [0; 12];
    all[..N].copy_from_slice(&words);
    // x86-64 passes it on the stack, arm64 by its address, which is never null.
    if cfg!(target_arch = "aarch64")
        && let Some(at) = HANDLES.get(symbol)
    {
        static HANDLE: [u64; 8] = [0; 8];
        all[*at] = HANDLE.as_ptr().expose_provenance() as u64;
    }
    let [a, b, c, d, e, f, g, h, i, j, k, l] = all;
    // SAFETY: pointers among the words are null or valid for what the function reads and writes.
    let code = unsafe { FUNCTIONS[symbol](a, b, c, d, e, f, g, h, i, j, k, l) };
    assert_ne!(code, 999, "{symbol} panicked with {words:x?}");
    code
}

/// Calls a function that writes a handle or an address to its first argument.
#[track_caller]
pub(crate) fn make<const N: usize>(symbol: &str, words: [u64; N]) -> u64 {
    let mut made = 0_u64;
    let mut all: Words = [0; 12];
    all[0] = (&raw mut made).expose_provenance() as u64;
    all[1..=N].copy_from_slice(&words);
    ok(call(symbol, all));
    made
}

/// CUmemPoolProps: pinned memory of the device 0.
pub(crate) fn pool_properties() -> [u32; 22] {
    core::array::from_fn(|at| u32::from(at == 0 || at == 2))
}

/// Memory of the host for pointers: 512 bytes for each of the arguments.
#[repr(align(16))]
pub(crate) struct Room([[u64; 64]; 12]);

impl Room {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self([[0; 64]; 12]))
    }
}

unsafe extern "C" fn callback(_: u64, _: u64, _: u64) -> usize {
    0
}

/// An object of each kind.
pub(crate) struct World {
    setup: Option<Setup>,
    /// The usual number.
    pub(crate) number: u64,
    /// By the letters of `parameters.txt`.
    pub(crate) objects: BTreeMap<char, u64>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::in_context(Setup::new())
    }

    pub(crate) fn in_context(setup: Setup) -> Self {
        let image = IMAGE.as_ptr().expose_provenance() as u64;
        let name = c"vector_add".as_ptr().expose_provenance() as u64;
        let library = make("cuLibraryLoadData", [image]);
        let graph = make("cuGraphCreate", [0]);
        let properties = pool_properties();
        // CUDA_ARRAY3D_DESCRIPTOR: 4 by 4 floats, for surfaces.
        let description = [4_u64, 4, 0, 1 << 32 | 0x20, 2];
        let at = |words: &[u64]| words.as_ptr().expose_provenance() as u64;
        let array = make("cuArray3DCreate_v2", [at(&description)]);
        let resource: [u64; 18] = core::array::from_fn(|word| if word == 1 { array } else { 0 });
        let at_text = |text: &core::ffi::CStr| text.as_ptr().expose_provenance() as u64;
        let references = make("cuModuleLoadData", [REFERENCES.as_ptr().expose_provenance() as u64]);
        let memory = make("cuMemAlloc_v2", [4096]);
        // The usual number, for which streams wait there.
        ok(call("cuMemcpyHtoD_v2", [memory, at(&[1]), 8]));
        let objects = [
            ('y', make("cuModuleGetTexRef", [references, at_text(c"picture")])),
            ('z', make("cuModuleGetSurfRef", [references, at_text(c"counts")])),
            ('r', array),
            ('q', make("cuMipmappedArrayCreate", [at(&description), 2])),
            ('t', make("cuTexObjectCreate", [at(&resource), at(&[0; 13]), 0])),
            ('w', make("cuSurfObjectCreate", [at(&resource)])),
            ('c', setup.context as u64),
            ('m', setup.module as u64),
            ('f', setup.add as u64),
            ('s', make("cuStreamCreate", [0])),
            ('e', make("cuEventCreate", [0])),
            ('g', graph),
            ('n', make("cuGraphAddEmptyNode", [graph, 0, 0])),
            ('x', make("cuGraphInstantiateWithFlags", [graph, 0])),
            ('p', make("cuMemPoolCreate", [properties.as_ptr().expose_provenance() as u64])),
            ('l', library),
            ('k', make("cuLibraryGetKernel", [library, name])),
            ('u', make("cuUserObjectCreate", [0, callback as *const () as u64, 1, 1])),
            ('a', memory),
            ('v', make("cuMemCreate", [2 << 20, properties.as_ptr().expose_provenance() as u64, 0])),
        ];
        let mut link = 0_u64;
        ok(call("cuLinkCreate_v2", [0, 0, 0, (&raw mut link).expose_provenance() as u64]));
        Self { setup: Some(setup), number: 1, objects: objects.into_iter().chain([('j', link)]).collect() }
    }

    /// A word that is right for a kind of parameter.
    pub(crate) fn good(&self, kind: char, at: usize, room: &mut Room) -> u64 {
        match kind {
            'P' => room.0[at].as_mut_ptr().expose_provenance() as u64,
            'T' => c"vector_add".as_ptr().expose_provenance() as u64,
            'F' => callback as *const () as u64,
            'i' => self.number,
            'd' | 'h' | 'V' => 0,
            _ => self.objects[&kind],
        }
    }

    /// Words that are right for all parameters.
    pub(crate) fn words(&self, kinds: &str, room: &mut Room) -> Words {
        let mut words = [0; 12];
        for (at, kind) in kinds.chars().enumerate() {
            words[at] = self.good(kind, at, room);
        }
        words
    }

    /// Ends everything, so that the handles are stale.
    pub(crate) fn end(&mut self) {
        self.setup = None;
        for (destroy, kind) in [
            ("cuMemPoolDestroy", 'p'),
            ("cuMemRelease", 'v'),
            ("cuLibraryUnload", 'l'),
            ("cuLinkDestroy", 'j'),
            ("cuUserObjectRelease", 'u'),
        ] {
            call(destroy, [self.objects[&kind], 1]);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.end();
    }
}

/// A call that is wrong in one place, and the results that it may have; any but a panic if there are none.
struct Wrong {
    what: &'static str,
    at: usize,
    word: u64,
    results: &'static [u32],
}

/// Pointers that may be null, as symbol (without version and `_ptsz`) and place.
const MAY_BE_NULL: &[(&str, &[usize])] = &[
    ("cuCtxCreate_v4", &[1]),
    ("cuCtxGetStreamPriorityRange", &[0, 1]),
    ("cuCtxPopCurrent", &[0]),
    // It is not supported.
    ("cuDeviceGetLuid", &[0, 1]),
    ("cuFuncGetParamInfo", &[3]),
    ("cuKernelGetParamInfo", &[3]),
    ("cuGetProcAddress_v2", &[4]),
    ("cuGraphAdd", &[2, 3, 4]),
    ("cuGraphExecUpdate", &[2, 3]),
    ("cuGraphGetEdges", &[1, 2, 3]),
    ("cuGraphGetNodes", &[1]),
    ("cuGraphGetRootNodes", &[1]),
    ("cuGraphInstantiate", &[2, 3]),
    ("cuGraphNodeGetDepend", &[1, 2]),
    ("cuGraphRemoveDependencies", &[1, 2, 3]),
    ("cuLaunchHostFunc", &[2]),
    ("cuLaunchKernel", &[9, 10]),
    ("cuLibraryGetGlobal", &[0, 1]),
    ("cuLibraryGetManaged", &[0, 1]),
    ("cuLinkAddData", &[4]),
    ("cuMemFreeHost", &[0]),
    ("cuMemGetAddressRange", &[0, 1]),
    ("cuMemGetInfo", &[0, 1]),
    ("cuModuleGetGlobal", &[0, 1]),
    ("cuOccupancyMaxPotentialBlockSize", &[3]),
    ("cuStreamGetCaptureInfo", &[2, 3, 4, 5, 6]),
    ("cuStreamGetCtx_v2", &[2]),
    ("cuStreamUpdateCaptureDependencies_v2", &[2]),
    ("cuTexObjectCreate", &[3]),
    ("cuTexRefGetFormat", &[0, 1]),
    ("cuTexRefSetAddress", &[0]),
    ("cuUserObjectCreate", &[1]),
];

/// Handles and addresses that no object has, and others that are of the wrong kind.
fn wrong_calls(symbol: &str, kinds: &str, world: &World, freed: &World) -> Vec<Wrong> {
    let mut calls = Vec::new();
    for (at, kind) in kinds.chars().enumerate() {
        let mut wrong = |what, word, results| calls.push(Wrong { what, at, word, results });
        match kind {
            'V' => {}
            'P' | 'T' | 'F' => {
                let may = MAY_BE_NULL
                    .iter()
                    .any(|&(name, places)| places.contains(&at) && symbol.starts_with(name));
                wrong("NULL", 0, if may { &[] } else { &[1] });
            }
            'i' => {
                for word in [0, 2, 7, 1 << 31, 1 << 32, 1 << 40, 1 << 63, u64::MAX] {
                    wrong("a number", word, &[]);
                }
            }
            'd' => {
                for word in [99, u64::MAX, 1 << 31] {
                    wrong("a device", word, &[1, 101]);
                }
            }
            'a' => {
                for word in [1, 0x1000, u64::MAX, freed.objects[&'a']] {
                    wrong("an address", word, &[1, 500]);
                }
            }
            _ => {
                let results: &[u32] = match kind {
                    'c' => &[1, 201],
                    'g' | 'n' | 'x' | 'p' | 'u' => &[1],
                    _ => &[1, 400],
                };
                for word in [3, 0x1000, u64::MAX, u64::MAX - 7, 1 << 63] {
                    wrong("an invented handle", word, results);
                }
                wrong("a freed handle", freed.objects[&kind], results);
                for (&other, &handle) in &world.objects {
                    if other != kind && !(kind == 'f' && other == 'k') {
                        wrong("a handle of another kind", handle, results);
                    }
                }
            }
        }
    }
    calls
}

/// Functions whose numbers must be right: sizes of memory behind their pointers, and what a stream waits for.
const RIGHT: &[&str] = &["cuLinkAddData", "cuStreamWaitValue"];

#[test]
fn wrong_arguments_are_refused() {
    let test = "sweep::wrong_arguments_are_refused";
    in_child(test, &[], || {
        let mut freed = World::new();
        // An address that no later allocation gets.
        freed.objects.insert('a', make("cuMemAllocManaged", [64 << 20, 1]));
        ok(call("cuMemFree_v2", [freed.objects[&'a']]));
        freed.end();
        let mut world = World::new();
        let mut faults = Vec::new();
        for number in [0, 1] {
            for (symbol, kinds) in implemented() {
                let mut at_call = 0;
                while let Some(wrong) = wrong_calls(symbol, kinds, &world, &freed).into_iter().nth(at_call) {
                    at_call += 1;
                    let Wrong { what, at, word, results } = wrong;
                    if what == "a number" && RIGHT.iter().any(|name| symbol.starts_with(name)) {
                        continue;
                    }
                    let mut room = Room::new();
                    world.number = number;
                    let mut words = world.words(kinds, &mut room);
                    words[at] = word;
                    let call_text = format!("{symbol}: {what} {word:#x} as argument {at}, numbers {number}");
                    eprintln!("{call_text}");
                    let code = call(symbol, words);
                    // Without elements, lists and addresses are not looked at.
                    let looked_at = number > 0 || what.ends_with("handle") || what.ends_with("kind");
                    if looked_at && !results.is_empty() && !results.contains(&code) {
                        faults.push(format!("{call_text} gives {code}"));
                    }
                    if code == 0 {
                        world = World::new();
                    }
                }
            }
        }
        assert!(faults.is_empty(), "{faults:#?}");
    });
}

/// Functions that may be called before `cuInit`.
pub(crate) const EARLY: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetExportTable",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
];

/// Calls all functions with arguments that were right once; returns the results.
pub(crate) fn call_all(world: &World) -> impl Iterator<Item = (&'static str, &'static str, u32)> {
    implemented().into_iter().map(|(symbol, kinds)| {
        let mut room = Room::new();
        (symbol, kinds, call(symbol, world.words(kinds, &mut room)))
    })
}

#[test]
fn no_function_works_before_cuinit() {
    in_child("sweep::no_function_works_before_cuinit", &[("ORIN_CUDA_DEVICE", "sim")], || {
        for entry in TABLE.iter().filter(|entry| !EARLY.contains(&entry.symbol)) {
            assert_eq!(call(entry.symbol, []), 3, "{}", entry.symbol);
        }
        // Also with arguments that would be right.
        let objects = "csemflkgnxpjauvrqtwyz".chars().map(|kind| (kind, 0x1_0000_0001));
        let world = World { setup: None, number: 1, objects: objects.collect() };
        for (symbol, _, code) in call_all(&world).filter(|(symbol, ..)| !EARLY.contains(symbol)) {
            assert_eq!(code, 3, "{symbol}");
        }
        ok(call("cuInit", [0]));
    });
}

/// Kinds of objects that live in a context.
const OF_CONTEXTS: &str = "csemfgnxarqtwyz";

/// Checks that functions refuse objects of a context that has ended.
fn check_stale(world: &World) {
    for (symbol, kinds, code) in call_all(world) {
        eprintln!("{symbol}: {code}");
        assert!(code != 0 || !kinds.contains(|kind| OF_CONTEXTS.contains(kind)), "{symbol} works");
    }
}

#[test]
fn objects_of_ended_contexts_are_refused() {
    in_child("sweep::objects_of_ended_contexts_are_refused", &[], || {
        let mut world = World::new();
        world.end();
        check_stale(&world);
        // With another context; and in the primary one, before and after its reset.
        let _setup = Setup::new();
        check_stale(&world);
        let primary = make("cuDevicePrimaryCtxRetain", [0]);
        ok(call("cuCtxSetCurrent", [primary]));
        let world = World::in_context(Setup::in_current());
        ok(call("cuDevicePrimaryCtxReset_v2", [0]));
        check_stale(&world);
        let again = make("cuDevicePrimaryCtxRetain", [0]);
        ok(call("cuCtxSetCurrent", [again]));
        check_stale(&world);
    });
}
