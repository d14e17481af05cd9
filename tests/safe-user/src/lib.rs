//! A user of the lowest crates who writes no `unsafe`.
//!
//! Each module of this crate is a way to break memory safety that safe code must not have. Its first example does not
//! compile. The second one differs in the word `unsafe` alone, or in the name of a type, and compiles: so the first one
//! fails for this reason and no other. `tests/refused.rs` has what is refused at run time.
#![forbid(unsafe_code)]

use core::ptr::NonNull;

/// Declares a hole: code that does not compile with the first variant of a part of it, and compiles with the second. A
/// nightly rustdoc also compares the error code.
macro_rules! hole {
    (
        $(#[$meta:meta])*
        $name:ident, $code:literal, [$without:literal, $with:literal], $before:literal, $after:literal
    ) => {
        $(#[$meta])*
        #[doc = concat!("\n```compile_fail,", $code, "\n", $before, "\n", $without, "\n", $after, "\n```")]
        #[doc = concat!("\n```no_run\n", $before, "\n", $with, "\n", $after, "\n```")]
        pub mod $name {}
    };
}

hole! {
    /// A request states which struct its number takes: with another one of the same size, the kernel would follow an
    /// address in it.
    request, "E0133", ["", "unsafe"],
    "use kernel_door::{Direction, Request};
    const READ: Request<nvgpu_sys::ctrl::ZbcQueryTable> =",
    "{ Request::new(\"NVMAP_IOC_READ\", Direction::Write, b'N', 7) };"
}

hole! {
    /// The number of a request without a size may be that of one that writes to its argument (`TIOCGWINSZ`).
    value_request, "E0133", ["", "unsafe"],
    "use kernel_door::ValueRequest;
    const WINDOW_SIZE: ValueRequest =",
    "{ ValueRequest::new(\"TIOCGWINSZ\", b'T', 0x13) };"
}

hole! {
    /// A struct without addresses is declared as such by the word `unsafe`; the same holds for a family of requests.
    plain_struct, "", ["", "unsafe"],
    "kernel_door::uapi_struct! {
        /// Layout of nvmap_rw_handle.",
    "plain Evil = \"evil\", 8 bytes {
            /// An address.
            0 => address: u64;
        }
    }"
}

hole! {
    /// An owner of a descriptor closes it, which may be another owner's.
    descriptor, "E0133", ["", "unsafe"],
    "use std::sync::Arc;
    use kernel_door::{Door, DoorFd};
    fn own(door: &Arc<dyn Door>) -> DoorFd {",
    "{ DoorFd::from_raw(door, 3) } }"
}

hole! {
    /// Closing a number closes the descriptor of whoever owns it.
    close, "E0133", ["", "unsafe"],
    "use kernel_door::{Door, LinuxDoor};
    fn close() {",
    "{ LinuxDoor.close(3) }.unwrap() }"
}

hole! {
    /// Reading from a number takes what another owner waits for.
    read, "E0133", ["", "unsafe"],
    "use kernel_door::{Door, LinuxDoor};
    fn read(buffer: &mut [u8]) -> usize {",
    "{ LinuxDoor.read(3, buffer) }.unwrap() }"
}

hole! {
    /// Mapping a number maps a file that its owner may truncate.
    map, "E0133", ["", "unsafe"],
    "use kernel_door::{Door, LinuxDoor, MapRequest, Protection};
    fn map() -> core::ptr::NonNull<u8> {
    let request = MapRequest { fd: 3, offset: 0, len: 4096, protection: Protection::READ, place: None };",
    "{ LinuxDoor.mmap(&request) }.unwrap() }"
}

hole! {
    /// Polling a number consumes the event of its owner.
    poll, "E0133", ["", "unsafe"],
    "use kernel_door::{Door, Events, LinuxDoor};
    fn poll() -> Events {",
    "{ LinuxDoor.poll(3, Events::IN, core::time::Duration::ZERO) }.unwrap() }"
}

hole! {
    /// nvmap's FREE closes a dma-buf descriptor that has the number.
    free, "E0133", ["", "unsafe"],
    "fn free(nvmap: &kernel_door::DoorFd) {",
    "{ nvgpu_sys::nvmap::FREE.send_closing(nvmap, 3) }.unwrap(); }"
}

hole! {
    /// It has no safe way to be sent, unlike a request that takes a plain number.
    free_as_a_number, "E0599", ["nvmap::FREE", "tsg::ENABLE"],
    "fn send(node: &kernel_door::DoorFd) { nvgpu_sys::",
    ".send(node, 3).unwrap(); }"
}

hole! {
    /// Commands in a ring write memory that references may cover.
    push, "E0133", ["", "unsafe"],
    "fn push(ring: &mut gpu_hal::SubmitRing) {",
    "{ ring.push(0x1234) }.unwrap() }"
}

hole! {
    /// The same with the doorbell.
    submit, "E0133", ["", "unsafe"],
    "fn submit(ring: &mut gpu_hal::SubmitRing) {",
    "{ ring.submit(0x1234) }.unwrap() }"
}

hole! {
    /// A group whose `abort` stops nothing lets the GPU write memory that a view covers.
    group, "E0200", ["", "unsafe"],
    "#[derive(Debug)]
    struct Endless;",
    " impl gpu_hal::ChannelGroup for Endless {
        fn error(&self) -> Option<gpu_hal::ErrorCode> { None }
        fn channel_ids(&self) -> Vec<u32> { Vec::new() }
        fn abort(&self) -> gpu_hal::Result<()> { Ok(()) }
        fn sleep(&self, _: core::time::Duration) -> bool { false }
    }"
}

hole! {
    /// A driver whose properties are not those of the GPU gets too little memory for what the GPU writes.
    driver, "E0200", ["", "unsafe"],
    "use core::ptr::NonNull;
    use gpu_hal::{Channels, DeviceMemory, Driver, Error, MemoryInfo, MemoryUse, Properties, Result};
    #[derive(Debug)]
    struct Liar(Properties);",
    " impl Driver for Liar {
        fn properties(&self) -> &Properties { &self.0 }
        fn allocate(&self, _: u64, _: MemoryUse, _: &str) -> Result<Box<dyn DeviceMemory>> {
            Err(Error::Unsupported(\"memory\"))
        }
        unsafe fn import(&self, _: NonNull<u8>, _: usize, _: &str) -> Result<Box<dyn DeviceMemory>> {
            Err(Error::Unsupported(\"memory\"))
        }
        fn memory_info(&self) -> Option<MemoryInfo> { None }
        fn clock_pair(&self) -> Result<(u64, std::time::SystemTime)> { Err(Error::Unsupported(\"clocks\")) }
        fn open_channels(&self) -> Result<Channels> { Err(Error::Unsupported(\"channels\")) }
        fn kernel_log(&self) -> Result<Vec<String>, String> { Ok(Vec::new()) }
    }"
}

hole! {
    /// A span computes addresses within bounds that nobody else sets.
    span, "E0451", ["orin_sim::mmu::Span", "safe_user::Span"],
    "use core::ptr::NonNull;
    use ",
    ";
    fn span() -> Span { Span { va: 0, end: u64::MAX, pointer: NonNull::dangling(), writable: false } }"
}

/// A struct with the fields of [`orin_sim::mmu::Span`], public.
#[derive(Debug)]
pub struct Span {
    /// As there.
    pub va: u64,
    /// As there.
    pub end: u64,
    /// As there.
    pub pointer: NonNull<u8>,
    /// As there.
    pub writable: bool,
}
