//! Ring entries and pushbuffers for a channel of the software Orin, opened through its door.
//!
//! The bytes are a program that creates pushbuffer segments (random words, methods of all classes with random data,
//! semaphores, copies) and ring entries (for these segments, or random). For any input, the channel completes the work,
//! is ended or halted by a fault that the kernel log reports, waits for a semaphore that the log reports, or is still
//! busy after a while. Another channel is then still served, and the board is empty after everything is closed.

use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ampere_cmd::gpfifo::{Entry, Segment, userd};
use ampere_cmd::{Encoder, Subchannel, compute_c7c0, copy_c7b5, host_c76f};
use kernel_door::{Door, DoorFd, DoorMapping, OpenFlags, Protection};
use nvgpu_sys::address_space::{self as space, MapBufferEx};
use nvgpu_sys::channel::{self, SetupBind, SetupBindFlags};
use nvgpu_sys::ctrl::{self, AllocAs, OpenChannel, OpenTsg};
use nvgpu_sys::nvmap::{self, AllocHandle, CreateHandle};
use nvgpu_sys::paths;
use nvgpu_sys::tsg::{self, BindChannelEx};
use orin_sim::gpu::Activity;
use orin_sim::{Config, LiveCounts, SoftwareOrin};

const ENTRIES: u32 = 64;
const PAGE: usize = 4096;
/// The pushbuffer of the program's channel, one page for the other channel's, then data.
const PUSHBUFFER: usize = 4 * PAGE;
const TAME: usize = PUSHBUFFER;
const DATA: usize = PUSHBUFFER + PAGE;
const BUFFER: usize = DATA + 3 * PAGE;
/// How long unfinished work is watched.
const WATCHED: Duration = Duration::from_millis(20);
/// Time limit for everything else, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The bytes of a program, consumed from the front; zeros after the end.
struct Program<'a> {
    rest: &'a [u8],
}

impl Program<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    fn number(&mut self, bytes: usize) -> u64 {
        (0..bytes).fold(0, |number, at| number | u64::from(self.byte()) << (8 * at))
    }
}

/// A board with an address space and a buffer in it.
struct Bench {
    orin: SoftwareOrin,
    door: Arc<dyn Door>,
    nvmap: DoorFd,
    ctrl: DoorFd,
}

/// A channel in its own TSG.
struct Channel {
    _tsg: DoorFd,
    _fd: DoorFd,
    _buffers: [DoorFd; 2],
    ring: DoorMapping,
    userd: DoorMapping,
    token: u32,
}

impl Bench {
    fn new() -> Self {
        let config = Config { deadlock_after: Duration::ZERO, ..Config::default() };
        let orin = SoftwareOrin::new(config).expect("the board boots");
        let door: Arc<dyn Door> = Arc::new(orin.clone());
        let open = |path| DoorFd::open(&door, path, OpenFlags::READ_WRITE).expect("the node opens");
        let (nvmap, ctrl) = (open(paths::NVMAP), open(paths::CTRL));
        Self { orin, door, nvmap, ctrl }
    }

    fn buffer(&self, bytes: usize) -> DoorFd {
        let mut args = CreateHandle { size_or_fd: bytes as u32, handle: 0 };
        nvmap::CREATE.send(&self.nvmap, &mut args).expect("CREATE");
        let handle = args.handle;
        let (heap_mask, flags) = (nvmap::Heaps::IOVMM.bits(), 0x900 << nvmap::TAG_SHIFT);
        let mut args = AllocHandle { handle, heap_mask, flags, align: 4096, numa_nid: -1 };
        nvmap::ALLOC.send(&self.nvmap, &mut args).expect("ALLOC");
        let mut args = CreateHandle { size_or_fd: 0, handle };
        nvmap::GET_FD.send(&self.nvmap, &mut args).expect("GET_FD");
        // SAFETY: the number is a handle.
        unsafe { nvmap::FREE.send_closing(&self.nvmap, handle) }.expect("FREE");
        self.owned(args.size_or_fd as i32)
    }

    /// Takes ownership of a descriptor that a request has returned.
    fn owned(&self, raw: i32) -> DoorFd {
        // SAFETY: nothing else owns it.
        unsafe { DoorFd::from_raw(&self.door, raw) }
    }

    fn map(fd: &DoorFd, bytes: usize) -> DoorMapping {
        fd.map(0, bytes, Protection::READ | Protection::WRITE).expect("a mapping")
    }

    fn space(&self) -> DoorFd {
        let (va_range_start, va_range_end) = (0x20_0000, 0xfc_0000_0000);
        let mut args = AllocAs { flags: 2, va_range_start, va_range_end, ..AllocAs::default() };
        ctrl::ALLOC_AS.send(&self.ctrl, &mut args).expect("ALLOC_AS");
        self.owned(args.as_fd)
    }

    fn channel(&self, space: &DoorFd) -> Channel {
        let mut args = OpenTsg::default();
        ctrl::OPEN_TSG.send(&self.ctrl, &mut args).expect("OPEN_TSG");
        let tsg = self.owned(args.tsg_fd as i32);
        let mut args = OpenChannel { runlist_id_or_fd: ctrl::RUNLIST_GR };
        ctrl::OPEN_CHANNEL.send(&self.ctrl, &mut args).expect("OPEN_CHANNEL");
        let fd = self.owned(args.runlist_id_or_fd);
        let mut args = space::BindChannel { channel_fd: fd.raw() as u32 };
        space::BIND_CHANNEL.send(space, &mut args).expect("BIND_CHANNEL");
        let mut args = BindChannelEx { channel_fd: fd.raw(), ..BindChannelEx::default() };
        tsg::BIND_CHANNEL_EX.send(&tsg, &mut args).expect("BIND_CHANNEL_EX");
        let mut args = channel::Wdt { wdt_status: channel::WDT_DISABLE, timeout_ms: 0 };
        channel::WDT.send(&fd, &mut args).expect("WDT");
        let buffers = [self.buffer(PAGE), self.buffer(PAGE)];
        let mut args = SetupBind {
            num_gpfifo_entries: ENTRIES,
            flags: (SetupBindFlags::DETERMINISTIC | SetupBindFlags::USERMODE_SUPPORT).bits(),
            gpfifo_dmabuf_fd: buffers[0].raw(),
            userd_dmabuf_fd: buffers[1].raw(),
            ..SetupBind::default()
        };
        channel::SETUP_BIND.send(&fd, &mut args).expect("SETUP_BIND");
        let token = args.work_submit_token;
        for class in [compute_c7c0::CLASS, copy_c7b5::CLASS] {
            let mut args = channel::AllocObjCtx { class_num: class.into(), ..Default::default() };
            channel::ALLOC_OBJ_CTX.send(&fd, &mut args).expect("ALLOC_OBJ_CTX");
        }
        let (ring, userd) = (Self::map(&buffers[0], PAGE), Self::map(&buffers[1], PAGE));
        Channel { _tsg: tsg, _fd: fd, _buffers: buffers, ring, userd, token }
    }

    /// The outcome of the program's channel, as a word and as the log line that reports it.
    fn outcome(&self, id: u32, put: u32) -> (&'static str, String) {
        let start = Instant::now();
        let logged = |text: &str| self.orin.kernel_log().into_iter().find(|line| line.contains(text));
        loop {
            let status = self.orin.channel_status(id);
            match status.as_ref().map(|status| &status.activity) {
                None => {
                    let line = logged("orin-sim: channel").expect("the log states why the channel ended");
                    return ("ended", line);
                }
                Some(Activity::Faulted) => {
                    if let Some(line) = logged("stays halted") {
                        return ("halted", line);
                    }
                }
                Some(Activity::WaitingForSemaphore { .. }) => {
                    if let Some(line) = logged("deadlock") {
                        return ("waits", line);
                    }
                }
                Some(Activity::Idle)
                    if status.as_ref().is_some_and(|now| now.gp_get == put && now.gp_put == put) =>
                {
                    return ("done", String::new());
                }
                Some(_) if start.elapsed() > WATCHED => return ("works", String::new()),
                Some(_) => {}
            }
            assert!(start.elapsed() < PATIENCE, "channel {id} stays {status:?}");
            std::thread::yield_now();
        }
    }
}

fn word(mapping: &DoorMapping, offset: usize) -> &AtomicU32 {
    assert!(offset + 4 <= mapping.len() && offset.is_multiple_of(4));
    // SAFETY: in bounds, aligned, and borrowed from the mapping that keeps it alive.
    unsafe { AtomicU32::from_ptr(mapping.pointer().as_ptr().add(offset).cast()) }
}

impl Channel {
    fn entry(&self, at: u32, entry: u64) {
        word(&self.ring, at as usize * 8).store(entry as u32, Ordering::Relaxed);
        word(&self.ring, at as usize * 8 + 4).store((entry >> 32) as u32, Ordering::Relaxed);
    }

    fn submit(&self, doorbell: &DoorMapping, put: u32) {
        word(&self.userd, userd::GP_PUT as usize).store(put, Ordering::Release);
        word(doorbell, ctrl::USERMODE_DOORBELL).store(self.token, Ordering::SeqCst);
    }
}

/// One data word: arbitrary, small, or half of a mapped address.
fn data(program: &mut Program<'_>, va: u64) -> u32 {
    match program.byte() % 4 {
        0 => program.number(4) as u32,
        1 => u32::from(program.byte()),
        2 => (va + DATA as u64) as u32 + u32::from(program.byte()) * 16,
        _ => (va >> 32) as u32,
    }
}

/// Words of one step of a program.
fn words(program: &mut Program<'_>, va: u64) -> Vec<u32> {
    let data_va = va + DATA as u64;
    let mut encoder = Encoder::new(Vec::new());
    match program.byte() % 8 {
        0 => {
            let count = 1 + program.byte() % 8;
            return (0..count).map(|_| program.number(4) as u32).collect();
        }
        // SEM_ADDR_LO to SEM_EXECUTE.
        1 => {
            let low = data_va as u32 + u32::from(program.byte()) * 4;
            let payload = [program.byte(), program.byte()].map(u32::from);
            return vec![
                0x2005_0017,
                low,
                (va >> 32) as u32,
                payload[0],
                payload[1],
                program.number(4) as u32,
            ];
        }
        // A rectangle within the data, and LAUNCH_DMA.
        2 => {
            let mut address = || data_va + u64::from(program.byte()) * 32;
            let [from, to, semaphore] = [address(), address(), address()];
            let mut number = || u32::from(program.byte());
            let rectangle = [number(), number(), number(), number()];
            let mut send = |address, data: &[u32]| {
                encoder.methods(Subchannel::COPY, address, data).expect("a method of the class");
            };
            let halves = |va: u64| [(va >> 32) as u32, va as u32];
            send(0x400, &[halves(from), halves(to)].concat());
            send(0x410, &rectangle);
            send(0x240, &halves(semaphore));
            send(0x300, &[program.number(4) as u32]);
            return encoder.into_sink();
        }
        _ => {}
    }
    // A method of one of the classes, in any header mode.
    let classes =
        [(0, &host_c76f::CLASS_TABLE), (1, &compute_c7c0::CLASS_TABLE), (4, &copy_c7b5::CLASS_TABLE)];
    let (subchannel, class) = classes[usize::from(program.byte() % 3)];
    let method = &class.methods[program.number(2) as usize % class.methods.len()];
    let mode = [1, 3, 5, 4][usize::from(program.byte() % 4)];
    let header = |count: u32| mode << 29 | count << 16 | subchannel << 13 | method.address >> 2;
    if mode == 4 {
        return vec![header(u32::from(program.byte()))];
    }
    let count = u32::from(1 + program.byte() % 6);
    core::iter::once(header(count)).chain((0..count).map(|_| data(program, va))).collect()
}

/// Runs a program. Returns its behaviour for the fuzzer: the outcome and its log line.
pub(crate) fn run(data: &[u8]) -> BTreeSet<u64> {
    let bench = Bench::new();
    let (space, buffer) = (bench.space(), bench.buffer(BUFFER));
    let mut args = MapBufferEx {
        compr_kind: space::KIND_INVALID,
        dmabuf_fd: buffer.raw() as u32,
        page_size: 4096,
        ..MapBufferEx::default()
    };
    space::MAP_BUFFER_EX.send(&space, &mut args).expect("MAP_BUFFER_EX");
    let (va, memory) = (args.offset, Bench::map(&buffer, BUFFER));
    let (wild, tame) = (bench.channel(&space), bench.channel(&space));
    let doorbell = Bench::map(&bench.ctrl, ctrl::USERMODE_PAGE_SIZE);

    let mut program = Program { rest: data };
    let (mut used, mut put) = (0, 0);
    let mut segment = Vec::new();
    while !program.rest.is_empty() && put < ENTRIES - 2 {
        let kind = program.byte() % 16;
        if kind == 0 {
            wild.entry(put, program.number(8));
            put += 1;
            continue;
        }
        segment.extend(words(&mut program, va));
        if kind > 11 || program.rest.is_empty() {
            if used + segment.len() * 4 > PUSHBUFFER {
                break;
            }
            for (at, value) in segment.iter().enumerate() {
                word(&memory, used + at * 4).store(*value, Ordering::Relaxed);
            }
            let entry = Segment::new(va + used as u64, segment.len() as u32);
            let conditional = kind == 13;
            let entry = Entry::from(Segment { conditional, sync: kind == 14, ..entry });
            wild.entry(put, entry.encode().expect("a segment of the buffer"));
            used += segment.len() * 4;
            put += 1;
            segment.clear();
        }
    }
    wild.submit(&doorbell, put);
    let (outcome, line) = bench.outcome(wild.token & 0xfff, put);

    // The other channel is served, whatever happened to this one. Its words are unpredictable, because copies of the
    // first channel may overwrite them. Rings are out of reach of copies.
    let words = [0x2005_0017, (va + DATA as u64) as u32, (va >> 32) as u32, 1, 0, 1];
    for (at, value) in words.into_iter().enumerate() {
        word(&memory, TAME + at * 4).store(value, Ordering::Relaxed);
    }
    tame.entry(0, Entry::from(Segment::new(va + TAME as u64, 6)).encode().expect("a segment"));
    tame.submit(&doorbell, 1);
    let start = Instant::now();
    while bench.orin.channel_status(tame.token & 0xfff).is_some_and(|status| status.gp_get == 0) {
        assert!(start.elapsed() < PATIENCE, "the other channel is not served: {outcome} {line}");
        std::thread::yield_now();
    }

    drop((wild, tame, doorbell, memory, buffer, space));
    let orin = bench.orin.clone();
    drop(bench);
    orin.exit();
    assert_eq!(orin.live(), LiveCounts::default(), "objects leaked");
    let mut hasher = DefaultHasher::new();
    // Words without digits, because numbers differ between runs.
    let text = line.split_once("orin-sim: ").map_or("", |(_, text)| text);
    let words: Vec<_> =
        text.split_whitespace().filter(|word| !word.contains(|char: char| char.is_ascii_digit())).collect();
    (outcome, words).hash(&mut hasher);
    BTreeSet::from([hasher.finish()])
}
