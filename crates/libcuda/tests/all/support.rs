//! The functions as C declares them, and a context to call them in.

use core::ffi::{CStr, c_char, c_int, c_void};

pub(crate) type Handle = usize;

unsafe extern "C" {
    pub(crate) fn cuInit(flags: u32) -> u32;
    pub(crate) fn cuGetExportTable(table: *mut *const c_void, id: *const c_void) -> u32;
    pub(crate) fn cuGetErrorName(code: u32, text: *mut *const c_char) -> u32;
    pub(crate) fn cuGetProcAddress_v2(
        name: *const c_char,
        function: *mut *mut c_void,
        version: c_int,
        flags: u64,
        status: *mut u32,
    ) -> u32;
    pub(crate) fn cuDeviceGetAttribute(value: *mut c_int, attribute: u32, device: c_int) -> u32;
    pub(crate) fn cuCtxCreate_v2(context: *mut Handle, flags: u32, device: c_int) -> u32;
    pub(crate) fn cuCtxDestroy_v2(context: Handle) -> u32;
    pub(crate) fn cuCtxGetCurrent(context: *mut Handle) -> u32;
    pub(crate) fn cuCtxSynchronize() -> u32;
    pub(crate) fn cuCtxPopCurrent_v2(context: *mut Handle) -> u32;
    pub(crate) fn cuCtxSetCurrent(context: Handle) -> u32;
    pub(crate) fn cuModuleLoadData(module: *mut Handle, image: *const c_void) -> u32;
    pub(crate) fn cuModuleUnload(module: Handle) -> u32;
    pub(crate) fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) -> u32;
    pub(crate) fn cuModuleGetGlobal_v2(
        address: *mut u64,
        bytes: *mut usize,
        module: Handle,
        name: *const c_char,
    ) -> u32;
    pub(crate) fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    pub(crate) fn cuMemFree_v2(address: u64) -> u32;
    pub(crate) fn cuMemAllocManaged(address: *mut u64, bytes: usize, flags: u32) -> u32;
    pub(crate) fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: u32) -> u32;
    pub(crate) fn cuMemFreeHost(pointer: *mut c_void) -> u32;
    pub(crate) fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: Handle) -> u32;
    pub(crate) fn cuMemFreeAsync(address: u64, stream: Handle) -> u32;
    pub(crate) fn cuMemcpyHtoD_v2(target: u64, source: *const c_void, bytes: usize) -> u32;
    pub(crate) fn cuMemcpyDtoH_v2(target: *mut c_void, source: u64, bytes: usize) -> u32;
    pub(crate) fn cuMemcpyHtoDAsync_v2(
        target: u64,
        source: *const c_void,
        bytes: usize,
        stream: Handle,
    ) -> u32;
    pub(crate) fn cuMemcpyDtoHAsync_v2(target: *mut c_void, source: u64, bytes: usize, stream: Handle)
    -> u32;
    pub(crate) fn cuMemcpy2D_v2(copy: *const [u64; 16]) -> u32;
    pub(crate) fn cuMemcpy2DAsync_v2(copy: *const [u64; 16], stream: Handle) -> u32;
    pub(crate) fn cuLinkCreate_v2(
        count: u32,
        options: *mut u32,
        values: *mut *mut c_void,
        link: *mut Handle,
    ) -> u32;
    pub(crate) fn cuLinkAddData_v2(
        link: Handle,
        kind: u32,
        data: *const c_void,
        bytes: usize,
        name: *const c_char,
        count: u32,
        options: *mut u32,
        values: *mut *mut c_void,
    ) -> u32;
    pub(crate) fn cuLinkComplete(link: Handle, cubin: *mut *const c_void, bytes: *mut usize) -> u32;
    pub(crate) fn cuLinkDestroy(link: Handle) -> u32;
    pub(crate) fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut c_int,
        block: *mut c_int,
        function: Handle,
        shared: Option<unsafe extern "C" fn(c_int) -> usize>,
        bytes: usize,
        limit: c_int,
    ) -> u32;
    pub(crate) fn cuMemsetD16_v2(address: u64, value: u16, count: usize) -> u32;
    pub(crate) fn cuMemsetD2D32_v2(
        address: u64,
        pitch: usize,
        value: u32,
        width: usize,
        height: usize,
    ) -> u32;
    pub(crate) fn cuPointerGetAttribute(data: *mut c_void, attribute: u32, pointer: u64) -> u32;
    pub(crate) fn cuStreamCreate(stream: *mut Handle, flags: u32) -> u32;
    pub(crate) fn cuStreamDestroy_v2(stream: Handle) -> u32;
    pub(crate) fn cuStreamSynchronize(stream: Handle) -> u32;
    pub(crate) fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) -> u32;
    pub(crate) fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) -> u32;
    pub(crate) fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) -> u32;
    pub(crate) fn cuLaunchHostFunc(
        stream: Handle,
        function: Option<unsafe extern "C" fn(*mut c_void)>,
        argument: *mut c_void,
    ) -> u32;
    pub(crate) fn cuEventCreate(event: *mut Handle, flags: u32) -> u32;
    pub(crate) fn cuEventDestroy_v2(event: Handle) -> u32;
    pub(crate) fn cuEventRecord(event: Handle, stream: Handle) -> u32;
    pub(crate) fn cuEventQuery(event: Handle) -> u32;
    pub(crate) fn cuEventSynchronize(event: Handle) -> u32;
    pub(crate) fn cuEventElapsedTime(ms: *mut f32, start: Handle, end: Handle) -> u32;
    pub(crate) fn cuGraphInstantiateWithFlags(executable: *mut Handle, graph: Handle, flags: u64) -> u32;
    pub(crate) fn cuGraphLaunch(executable: Handle, stream: Handle) -> u32;
    pub(crate) fn cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) -> u32;
    pub(crate) fn cuGraphDestroy(graph: Handle) -> u32;
    pub(crate) fn cuLaunchKernel(
        function: Handle,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        stream: Handle,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> u32;
    pub(crate) fn cuLaunchCooperativeKernel(
        function: Handle,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        stream: Handle,
        parameters: *mut *mut c_void,
    ) -> u32;
}

/// Name of a result.
pub(crate) fn name(code: u32) -> String {
    let mut text = core::ptr::null();
    // SAFETY: the place is valid; the text is static.
    unsafe {
        assert_eq!(cuGetErrorName(code, &raw mut text), 0, "{code} is no result");
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// The call must return this result.
#[track_caller]
pub(crate) fn gives(code: u32, wanted: u32) {
    assert_eq!(code, wanted, "{} instead of {}", name(code), name(wanted));
}

/// The call must succeed.
#[track_caller]
pub(crate) fn ok(code: u32) {
    gives(code, 0);
}

/// What a call writes to its first argument.
#[track_caller]
pub(crate) fn made<T: Default>(call: impl FnOnce(*mut T) -> u32) -> T {
    let mut value = T::default();
    ok(call(&raw mut value));
    value
}

/// The address of what a call writes.
pub(crate) fn place<T: ?Sized>(value: &mut T) -> u64 {
    core::ptr::from_mut(value).cast::<u8>().expose_provenance() as u64
}

/// A cubin with the kernel `vector_add`.
pub(crate) const IMAGE: &[u8] = include_bytes!("../../../tegra-hcq/kernels/vector_add.cubin");

/// A cubin with the texture references `picture` and `line`, the surface reference `counts`, and the kernel `look`.
pub(crate) const REFERENCES: &[u8] = include_bytes!("../references.cubin");

/// Variable that names the test that a child process does.
const CHILD: &str = "ORIN_TEST_CHILD";

/// Does the work of a test in a process of its own, on its main thread, which may take a minute. Returns what it
/// printed; `None` in the child.
pub(crate) fn in_child(test: &str, variables: &[(&str, &str)], work: impl FnOnce()) -> Option<String> {
    if std::env::var(CHILD).is_ok_and(|name| name == test) {
        // SAFETY: the call takes a number; the signal ends a process that hangs.
        unsafe { libc::alarm(300) };
        work();
        return None;
    }
    let mut command = std::process::Command::new(std::env::current_exe().expect("a test knows its path"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, test);
    let done = command.envs(variables.iter().copied()).output().expect("the test starts again");
    let text = String::from_utf8_lossy(&done.stderr).into_owned() + &String::from_utf8_lossy(&done.stdout);
    let lines: Vec<_> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(60)..].join("\n");
    assert!(done.status.success(), "{}:\n{last}", done.status);
    assert!(text.contains("1 passed"), "the test {test} is not there:\n{last}");
    Some(text)
}

/// A context of this thread, with the kernel `vector_add`.
pub(crate) struct Setup {
    pub(crate) context: Handle,
    pub(crate) module: Handle,
    pub(crate) add: Handle,
}

impl Setup {
    pub(crate) fn new() -> Self {
        // SAFETY: all places and the image are valid.
        unsafe {
            // The devices are chosen by the first call of the process.
            std::env::set_var("ORIN_CUDA_DEVICE", "sim");
            ok(cuInit(0));
            made::<Handle>(|place| cuCtxCreate_v2(place, 0, 0));
        }
        Self::in_current()
    }

    /// The kernel in the current context.
    pub(crate) fn in_current() -> Self {
        // SAFETY: all places and the image are valid.
        unsafe {
            let context = made(|place| cuCtxGetCurrent(place));
            let module = made(|place| cuModuleLoadData(place, IMAGE.as_ptr().cast()));
            let add = made(|place| cuModuleGetFunction(place, module, c"vector_add".as_ptr()));
            Self { context, module, add }
        }
    }

    /// Launches `c = a + b` for `count` elements on a stream.
    pub(crate) fn add(&self, stream: Handle, [mut a, mut b, mut c]: [u64; 3], mut count: u32) -> u32 {
        let mut parameters: [*mut c_void; 4] =
            [(&raw mut a).cast(), (&raw mut b).cast(), (&raw mut c).cast(), (&raw mut count).cast()];
        let blocks = count.div_ceil(256).max(1);
        // SAFETY: the parameters are those of the kernel and live for the call.
        unsafe {
            cuLaunchKernel(
                self.add,
                blocks,
                1,
                1,
                256,
                1,
                1,
                0,
                stream,
                parameters.as_mut_ptr(),
                core::ptr::null_mut(),
            )
        }
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        // SAFETY: no argument is a pointer.
        unsafe { cuCtxDestroy_v2(self.context) };
    }
}

/// Memory of the GPU with these elements.
#[track_caller]
pub(crate) fn upload(elements: &[f32]) -> u64 {
    // SAFETY: the elements are valid for the copy.
    unsafe {
        let address = made(|place| cuMemAlloc_v2(place, size_of_val(elements)));
        ok(cuMemcpyHtoD_v2(address, elements.as_ptr().cast(), size_of_val(elements)));
        address
    }
}

/// The elements at an address of the GPU.
#[track_caller]
pub(crate) fn download<T: Default + Clone>(address: u64, count: usize) -> Vec<T> {
    let mut elements = vec![T::default(); count];
    // SAFETY: the room is valid for the copy.
    ok(unsafe { cuMemcpyDtoH_v2(elements.as_mut_ptr().cast(), address, count * size_of::<T>()) });
    elements
}
