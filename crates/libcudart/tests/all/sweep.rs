//! Calls of every function with arguments that are wrong in one place each. No call may crash, hang or panic (999).

use std::ffi::CString;
use std::process::Command;

use cudart::TABLE;

/// Variable that says this process is the one that calls.
const CHILD: &str = "ORIN_TEST_CHILD";

/// A function, with a word for each argument. A function ignores those that it does not declare.
type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u32;

/// Words for the arguments.
type Words = [u64; 10];

/// Memory for pointers: 4 KiB for each of the arguments.
#[repr(align(16))]
struct Room([[u64; 512]; 10]);

extern "C" fn callback(_: u64, _: u64, _: u64) {}

fn address(symbol: &str) -> Function {
    let name = CString::new(symbol).expect("no zero byte");
    // SAFETY: the name is that of a function of this process, which takes words and returns a number.
    unsafe {
        let library = libc::dlopen(c"libcudart.so.13".as_ptr(), libc::RTLD_NOW);
        core::mem::transmute::<*mut libc::c_void, Function>(libc::dlsym(library, name.as_ptr()))
    }
}

fn call(symbol: &str, words: Words) -> u32 {
    let [a, b, c, d, e, f, g, h, i, j] = words;
    // SAFETY: pointers among the words are NULL or valid for what the function reads and writes.
    let code = unsafe { address(symbol)(a, b, c, d, e, f, g, h, i, j) };
    assert_ne!(code, 999, "{symbol} panicked with {words:x?}");
    code
}

/// A handle that a function writes to its first argument.
fn made(symbol: &str, rest: &[u64]) -> u64 {
    let mut handle = 0_u64;
    let mut words = [0; 10];
    words[0] = (&raw mut handle).expose_provenance() as u64;
    words[1..=rest.len()].copy_from_slice(rest);
    assert_eq!(call(symbol, words), 0, "{symbol}");
    handle
}

/// A word that is right for a kind of parameter (`parameters.txt` explains the letters).
fn good(kind: char, at: usize, room: &mut Room, objects: &[(char, u64)]) -> u64 {
    match kind {
        'P' => room.0[at].as_mut_ptr().expose_provenance() as u64,
        'T' => c"vector_add".as_ptr().expose_provenance() as u64,
        'F' => callback as *const () as u64,
        'i' => 1,
        _ => objects.iter().find(|object| object.0 == kind).map_or(0, |object| object.1),
    }
}

fn call_all() {
    let graph = made("cudaGraphCreate", &[0]);
    let objects = [
        ('s', made("cudaStreamCreate", &[])),
        ('e', made("cudaEventCreate", &[])),
        ('g', graph),
        ('n', made("cudaGraphAddEmptyNode", &[graph, 0, 0])),
        ('x', made("cudaGraphInstantiate", &[graph, 0])),
        ('a', made("cudaMalloc", &[4096])),
        ('u', made("cudaUserObjectCreate", &[0, callback as *const () as u64, 1, 1])),
    ];
    // Those whose arguments are structures, whose result is no error, that write a file, and those that end what the
    // others use.
    let skipped = |name: &str, kinds: &str| {
        kinds.contains('V')
            || name == "cudaCreateChannelDesc"
            || name.starts_with("cudaGetError")
            || name.contains("DotPrint")
            || name.contains("Destroy")
            || name.contains("Free")
            || name.contains("Reset")
            || name.contains("ThreadExit")
    };
    let mut room = Box::new(Room([[0; 512]; 10]));
    let mut calls = 0_u32;
    for line in include_str!("../parameters.txt").lines().filter(|line| !line.starts_with('#')) {
        let (name, kinds) = line.split_once(' ').unwrap_or((line, ""));
        if skipped(name, kinds) {
            continue;
        }
        let invented = |kind| match kind {
            'P' | 'T' | 'F' => vec![0],
            'i' => vec![0, u64::from(u32::MAX), u64::MAX],
            _ => vec![0, 0x1234_5678_9abc, u64::MAX],
        };
        for (at, kind) in kinds.chars().enumerate() {
            for wrong in invented(kind) {
                room.0.iter_mut().for_each(|part| part.fill(0));
                let mut words = [0; 10];
                for (word, kind) in kinds.chars().enumerate() {
                    words[word] = good(kind, word, &mut room, &objects);
                }
                words[at] = wrong;
                // Sizes of host memory are the program's promise.
                if kind == 'i' && wrong > 512 && kinds.contains('P') && name.contains("cpy") {
                    continue;
                }
                call(name, words);
                calls += 1;
            }
        }
    }
    assert!(calls > 1000, "{calls} calls");
    // The library still works.
    assert_eq!(call("cudaDeviceReset", [0; 10]), 0);
    made("cudaMalloc", &[4096]);
}

#[test]
fn no_wrong_argument_crashes() {
    if std::env::var_os(CHILD).is_some() {
        // SAFETY: the call takes a number; the signal ends a process that hangs.
        unsafe { libc::alarm(120) };
        return call_all();
    }
    assert!(TABLE.len() > 430);
    let libraries = crate::libraries();
    let mut again = Command::new(std::env::current_exe().expect("a test knows its path"));
    again
        .args(["sweep::no_wrong_argument_crashes", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1");
    let printed = crate::run(&mut again, libraries.path());
    assert!(printed.contains("1 passed"), "{printed}");
}
