//! Memory and events of other processes.

use core::ffi::{CStr, c_void};
use std::env;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::support::*;
use crate::sweep::{call, make, pool_properties};

/// A handle, which is passed by value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
struct IpcHandle([u64; 8]);

unsafe extern "C" {
    fn cuIpcGetMemHandle(handle: *mut IpcHandle, address: u64) -> u32;
    fn cuIpcOpenMemHandle_v2(address: *mut u64, handle: IpcHandle, flags: u32) -> u32;
    fn cuIpcGetEventHandle(handle: *mut IpcHandle, event: Handle) -> u32;
    fn cuIpcOpenEventHandle(event: *mut Handle, handle: IpcHandle) -> u32;
}

/// Opens memory; the result is the code if it fails.
fn open(handle: IpcHandle) -> Result<u64, u32> {
    let mut address = 0;
    // SAFETY: the place is valid.
    match unsafe { cuIpcOpenMemHandle_v2(&raw mut address, handle, 1) } {
        0 => Ok(address),
        code => Err(code),
    }
}

fn export(address: u64) -> IpcHandle {
    // SAFETY: the place is valid.
    made(|place| unsafe { cuIpcGetMemHandle(place, address) })
}

/// Variables that pass handles and a path to the child.
const HANDLES: &str = "ORIN_TEST_HANDLES";
const GO: &str = "ORIN_TEST_GO";

fn text_of(handles: &[IpcHandle]) -> String {
    handles.iter().flat_map(|handle| handle.0).map(|word| format!("{word:x} ")).collect()
}

/// The handles that the parent has passed.
fn passed<const N: usize>() -> [IpcHandle; N] {
    let text = env::var(HANDLES).expect("the parent passes handles");
    let words: Vec<_> =
        text.split_whitespace().map(|word| u64::from_str_radix(word, 16).expect("a word")).collect();
    core::array::from_fn(|at| IpcHandle(core::array::from_fn(|word| words[at * 8 + word])))
}

/// Holds a stream until the file exists.
unsafe extern "C" fn hold(path: *mut c_void) {
    // SAFETY: a path of the test, which outlives the stream's work.
    let path = unsafe { CStr::from_ptr(path.cast()) }.to_bytes();
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    while !path.exists() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// The child waits on its GPU for work of the parent, adds to the same memory, and records the event for the parent.
#[test]
fn processes_share_memory_and_order_their_work_by_an_event() {
    let test = "ipc::processes_share_memory_and_order_their_work_by_an_event";
    if env::var_os(HANDLES).is_some() {
        in_child(test, &[], the_second_process);
        return;
    }
    let setup = Setup::new();
    let go = env::temp_dir().join(format!("orin-ipc-{}", std::process::id()));
    let path = CString::new(go.as_os_str().as_bytes()).expect("no zero byte");
    // Two small buffers, which are parts of one block of memory.
    let [_, sums] = [(); 2].map(|()| upload(&[0.0; 64]));
    let ones = upload(&[1.0; 64]);
    let stream = make("cuStreamCreate", [1]) as Handle;
    let event = make("cuEventCreate", [6]) as Handle;
    let [memory, ended] = [export(sums), export(ones)];
    // SAFETY: the places are valid; the path outlives the stream's work, which is waited for.
    unsafe {
        let shared = made(|place| cuIpcGetEventHandle(place, event));
        ok(cuLaunchHostFunc(stream, Some(hold), path.as_ptr().cast_mut().cast()));
        ok(setup.add(stream, [ones, ones, sums], 64));
        ok(cuEventRecord(event, stream));
        gives(cuEventQuery(event), 600);
        let handles = text_of(&[memory, shared, ended]);
        let variables =
            [("ORIN_CUDA_DEVICE", "sim"), (HANDLES, &handles), (GO, path.to_str().expect("text"))];
        in_child(test, &variables, || ());
        // The newest record is that of the child.
        ok(cuEventSynchronize(event));
        ok(cuEventQuery(event));
        ok(cuStreamWaitEvent(stream, event, 0));
        ok(setup.add(stream, [sums, ones, sums], 64));
        ok(cuStreamSynchronize(stream));
        ok(cuEventDestroy_v2(event));
    }
    assert_eq!(download::<f32>(sums, 64), [6.0; 64]);
    std::fs::remove_file(&go).expect("the child has made the file");
}

fn the_second_process() {
    let setup = Setup::new();
    let [memory, shared, other] = passed();
    let [sums, again, ones] = [memory, memory, other].map(|handle| open(handle).expect("it opens"));
    assert_eq!(sums, again);
    let stream = make("cuStreamCreate", [1]) as Handle;
    // SAFETY: places are valid; the memory outlives the work, which is waited for.
    unsafe {
        let event: Handle = made(|place| cuIpcOpenEventHandle(place, shared));
        gives(cuEventQuery(event), 600);
        ok(cuStreamWaitEvent(stream, event, 0));
        ok(setup.add(stream, [sums, ones, sums], 64));
        ok(setup.add(stream, [sums, sums, sums], 64));
        ok(setup.add(stream, [sums, ones, sums], 64));
        thread::sleep(Duration::from_millis(5));
        ok(cuEventRecord(event, stream));
        gives(cuEventQuery(event), 600);
        std::fs::write(env::var(GO).expect("the parent passes a path"), []).expect("it is writable");
        ok(cuEventSynchronize(event));
        ok(cuEventDestroy_v2(event));
    }
    assert_eq!(download::<f32>(sums, 64), [7.0; 64]);
    ok(call("cuMemsetD32_v2", [sums, 5.0_f32.to_bits().into(), 64]));
    let mut kind = 0_u32;
    ok(call("cuPointerGetAttribute", [(&raw mut kind).expose_provenance() as u64, 2, sums]));
    assert_eq!(kind, 2);
    // Opened twice, it is closed twice.
    gives(call("cuMemFree_v2", [sums]), 1);
    ok(call("cuIpcCloseMemHandle", [sums]));
    assert_eq!(download::<f32>(sums, 1), [5.0]);
    ok(call("cuIpcCloseMemHandle", [sums]));
    gives(call("cuIpcCloseMemHandle", [sums]), 1);
    gives(call("cuMemsetD32_v2", [sums, 0, 64]), 1);
    ok(call("cuIpcCloseMemHandle", [ones]));
}

#[test]
fn wrong_handles_are_refused() {
    let test = "ipc::wrong_handles_are_refused";
    let freed = |kept: u64| {
        let memory = upload(&[1.0; 8]);
        let handles = [export(memory), export(kept)];
        ok(call("cuMemFree_v2", [memory]));
        handles
    };
    if env::var_os(HANDLES).is_some() {
        in_child(test, &[], || {
            let _setup = Setup::new();
            let [freed, kept, shared] = passed();
            assert_eq!(open(freed), Err(205));
            assert_eq!(open(shared), Err(400), "an event is no memory");
            let change = |at: usize, word: u64| {
                let mut changed = kept;
                changed.0[at] ^= word;
                changed
            };
            // The mark, the kind, the process, its number, the memory's number, the GPU, the rest.
            let changes = [(0, 1, 400), (1, 2, 400), (1, 1 << 32, 205), (2, 1, 205), (3, 1 << 40, 205)];
            for (at, word, code) in changes.into_iter().chain([(4, 1, 217), (7, 1, 400)]) {
                assert_eq!(open(change(at, word)), Err(code), "word {at}");
            }
            let address = open(kept).expect("it opens");
            // Another context of the process does not share the mapping.
            // SAFETY: the place is valid.
            let context: Handle = made(|place| unsafe { cuCtxCreate_v2(place, 0, 0) });
            assert_eq!(open(kept), Err(201));
            // SAFETY: no pointer.
            ok(unsafe { cuCtxDestroy_v2(context) });
            assert_eq!(open(kept), Ok(address));
            println!("kept at {address:#x}");
        });
        return;
    }
    let setup = Setup::new();
    let kept = upload(&[1.0; 8]);
    let [gone, kept] = freed(kept);
    let [plain, shared] = [2, 6].map(|flags| make("cuEventCreate", [flags]) as Handle);
    let mut place = IpcHandle::default();
    // SAFETY: the places are valid.
    unsafe {
        let ipc = made(|place| cuIpcGetEventHandle(place, shared));
        let variables = [("ORIN_CUDA_DEVICE", "sim"), (HANDLES, &text_of(&[gone, kept, ipc]))];
        in_child(test, &variables, || ());
        // This process has made them.
        assert_eq!(open(kept), Err(201));
        let (mut address, mut event) = (0, 0);
        gives(cuIpcOpenEventHandle(&raw mut event, ipc), 201);
        gives(cuIpcOpenEventHandle(&raw mut event, kept), 400);
        gives(cuIpcOpenMemHandle_v2(&raw mut address, kept, 0), 1);
        gives(cuIpcGetEventHandle(&raw mut place, plain), 400);
        // Only memory of cuMemAlloc.
        let (variable, pinned) = (made::<u64>(|place| cuMemAllocManaged(place, 64, 1)), &mut place);
        gives(cuIpcGetMemHandle(&raw mut *pinned, variable), 1);
        let pooled = made::<u64>(|place| cuMemAllocAsync(place, 64, 0));
        gives(cuIpcGetMemHandle(&raw mut place, pooled), 1);
        gives(cuIpcGetMemHandle(&raw mut place, 4096), 1);
        // Times do not go to other processes.
        gives(cuEventCreate(&raw mut event, 4), 1);
    }
    let graph = make("cuGraphCreate", [0]);
    let mut node = 0_u64;
    let place = (&raw mut node).expose_provenance() as u64;
    gives(call("cuGraphAddEventRecordNode", [place, graph, 0, 0, shared as u64]), 801);
    drop(setup);
}

#[test]
fn memory_of_a_pool_is_imported_by_another_process() {
    let test = "ipc::memory_of_a_pool_is_imported_by_another_process";
    if env::var_os(HANDLES).is_some() {
        in_child(test, &[], || {
            let [mut data, mut other] = passed::<2>();
            let file: u64 = env::var(GO).expect("the parent passes a file").parse().expect("a number");
            // The memory belongs to no context, and there is none yet.
            ok(call("cuInit", [0]));
            let pool = make("cuMemPoolImportFromShareableHandle", [file, 1, 0]);
            let memory = make("cuMemPoolImportPointer", [pool, place(&mut data)]);
            drop(Setup::new());
            let _setup = Setup::new();
            assert_eq!(download::<u32>(memory, 64), [3; 64]);
            ok(call("cuMemsetD32_v2", [memory, 4, 64]));
            let mut address = 0_u64;
            let at = place(&mut address);
            gives(call("cuMemPoolImportPointer", [at, pool, place(&mut other)]), 205);
            gives(call("cuMemAllocFromPoolAsync", [at, 64, pool, 0]), 1);
            gives(call("cuIpcCloseMemHandle", [memory]), 1);
            ok(call("cuMemFreeAsync", [memory, 0]));
            gives(call("cuMemFreeAsync", [memory, 0]), 1);
            ok(call("cuMemFree_v2", [make("cuMemPoolImportPointer", [pool, place(&mut data)])]));
            let own = make("cuMemPoolCreate", [pool_properties().as_ptr().expose_provenance() as u64]);
            gives(call("cuMemPoolImportPointer", [at, own, place(&mut data)]), 1);
            gives(call("cuMemPoolExportToShareableHandle", [at, own, 1, 0]), 1);
            ok(call("cuMemPoolDestroy", [pool]));
        });
        return;
    }
    let _setup = Setup::new();
    let mut properties = pool_properties();
    properties[1] = 1;
    let pool = make("cuMemPoolCreate", [properties.as_ptr().expose_provenance() as u64]);
    let [memory, freed] = [(); 2].map(|()| make("cuMemAllocFromPoolAsync", [256, pool, 0]));
    ok(call("cuMemsetD32_v2", [memory, 3, 64]));
    let [data, gone] = [memory, freed].map(|address| {
        let mut data = IpcHandle::default();
        // On a thread without a context.
        let code = std::thread::scope(|scope| {
            let export = scope.spawn(|| call("cuMemPoolExportPointer", [place(&mut data), address]));
            export.join().expect("no call panics")
        });
        ok(code);
        data
    });
    ok(call("cuMemFreeAsync", [freed, 0]));
    let mut file = -1_i32;
    ok(call("cuMemPoolExportToShareableHandle", [place(&mut file), pool, 1, 0]));
    gives(call("cuMemPoolExportToShareableHandle", [place(&mut file), pool, 2, 0]), 801);
    let mut data_of_others = IpcHandle::default();
    gives(call("cuMemPoolExportPointer", [place(&mut data_of_others), upload(&[0.0])]), 1);
    // SAFETY: the descriptor is this test's, and the child inherits it.
    assert_eq!(unsafe { libc::fcntl(file, libc::F_SETFD, 0) }, 0);
    let (handles, number) = (text_of(&[data, gone]), file.to_string());
    in_child(test, &[("ORIN_CUDA_DEVICE", "sim"), (HANDLES, &handles), (GO, &number)], || ());
    assert_eq!(download::<u32>(memory, 64), [4; 64]);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::close(file) }, 0);
}
