//! Launch descriptors for the software GPU: mutated valid ones, and random words.
//!
//! The bytes are a program that writes descriptors to memory, sets up a channel and sends PCAS actions. For any input,
//! the channel ends idle, busy, or halted by a fault, it can be stopped, and another channel of the same GPU is served
//! all the time.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ampere_cmd::gpfifo::{Entry, Segment, userd};
use ampere_cmd::qmd::{QmdV3_0, v3_0 as q};
use ampere_cmd::{Encoder, Method, Subchannel, compute_c7c0 as class, usermode_c561};
use cubin::Cubin;
use orin_sim::check::{Checker, Tools};
use orin_sim::gpu::{
    Activity, ChannelFault, ChannelGroup, ChannelSetup, FaultHandler, Gpu, GpuConfig, Preemption,
};
use orin_sim::memory::Memory;
use orin_sim::mmu::{AddressSpace, MappedRange};
use orin_sim::sm::SmOptions;

const CODE: u64 = 0x12_1000_0000;
/// Pushbuffers of both channels, constant banks, semaphores and the kernels' data.
const DATA: u64 = 0x15_0000_0000;
const DATA_BYTES: usize = 1 << 17;
const WILD_WORDS: u64 = 0;
const TAME_WORDS: u64 = 0x4000;
const BANK: u64 = 0x8000;
const TAME_SEMAPHORE: u64 = 0x9000;
const DESCRIPTORS: u64 = 0xa000;
/// Number of descriptor slots.
const SLOTS: u8 = 8;
const LOCAL: u64 = 0x20_0000_0000;
const LOCAL_PER_TPC: u64 = 96 * 32 * 1024;
const SM_COUNT: u32 = 2;
const SHARED_WINDOW: u64 = 0x7294_0000_0000;
const LOCAL_WINDOW: u64 = 0x7293_0000_0000;
/// How long a channel is watched; a grid may have too many blocks to wait for.
const WATCHED: Duration = Duration::from_millis(4);
/// Time limit of the other channel, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum number of steps of a program.
const STEPS: usize = 64;

/// Records the GPU's reports.
#[derive(Default)]
struct Faults(Mutex<Vec<(u32, ChannelFault)>>);

impl FaultHandler for Faults {
    fn fault(&self, channel_id: u32, fault: ChannelFault) {
        self.0.lock().expect("no test thread panics with it").push((channel_id, fault));
    }
}

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

fn map(space: &AddressSpace, va: u64, len: usize, ordered: bool) -> Arc<Memory> {
    let memory = Memory::new("fuzz", len.next_multiple_of(4096)).expect("memory");
    let memory = Arc::new(if ordered { memory.watched(true) } else { memory });
    let len = memory.len() as u64;
    space.map(MappedRange { va, len, memory: Arc::clone(&memory), offset: 0, writable: true, cached: false });
    memory
}

/// The kernels that descriptors may name.
struct Kernels {
    cubin: Cubin,
    image: Vec<u8>,
}

impl Kernels {
    const NAMES: [&str; 4] = ["empty", "fill_u32", "increment", "thread_ids"];

    fn new() -> Self {
        let cubin = Cubin::parse(include_bytes!("../../kernels/basics.cubin")).expect("a cubin");
        let image = cubin.image_at(CODE).expect("an image");
        Self { cubin, image }
    }

    /// A valid descriptor for a kernel.
    fn descriptor(&self, name: &str) -> QmdV3_0 {
        let kernel = self.cubin.kernel(name).expect("the kernel");
        let program = CODE + kernel.code_offset;
        let bank = DATA + BANK;
        let mut qmd = QmdV3_0::new();
        let first = |array: ampere_cmd::qmd::FieldArray<q::Layout>| array.at(0).expect("eight banks");
        for (field, value) in [
            (q::QMD_MAJOR_VERSION, 3),
            (q::API_VISIBLE_CALL_LIMIT, q::API_VISIBLE_CALL_LIMIT_NO_CHECK),
            (q::CTA_RASTER_WIDTH, 2),
            (q::CTA_RASTER_HEIGHT, 1),
            (q::CTA_RASTER_DEPTH, 1),
            (q::CTA_THREAD_DIMENSION0, 32),
            (q::CTA_THREAD_DIMENSION1, 1),
            (q::CTA_THREAD_DIMENSION2, 1),
            (q::SHARED_MEMORY_SIZE, 1024),
            (q::MIN_SM_CONFIG_SHARED_MEM_SIZE, 3),
            (q::TARGET_SM_CONFIG_SHARED_MEM_SIZE, 3),
            (q::MAX_SM_CONFIG_SHARED_MEM_SIZE, 42),
            (q::REGISTER_COUNT_V, u64::from(kernel.registers)),
            (q::BARRIER_COUNT, 1),
            (q::SHADER_LOCAL_MEMORY_HIGH_SIZE, 0x240),
            (q::PROGRAM_ADDRESS_LOWER, program & 0xffff_ffff),
            (q::PROGRAM_ADDRESS_UPPER, program >> 32),
            (q::SASS_VERSION, 0x87),
            (first(q::CONSTANT_BUFFER_VALID), 1),
            (first(q::CONSTANT_BUFFER_ADDR_LOWER), bank & 0xffff_ffff),
            (first(q::CONSTANT_BUFFER_ADDR_UPPER), bank >> 32),
            (first(q::CONSTANT_BUFFER_SIZE_SHIFTED4), u64::from(kernel.constant0_bytes.div_ceil(16))),
        ] {
            qmd.set(field, value).expect("it fits");
        }
        qmd
    }

    /// A constant bank with a pointer to the data, a value and a count at the kernels' parameter offsets.
    fn bank(&self) -> Vec<u8> {
        let kernel = self.cubin.kernel("fill_u32").expect("the kernel");
        let mut bank = vec![0; kernel.constant0_bytes.next_multiple_of(16) as usize];
        bank[..4].copy_from_slice(&32_u32.to_le_bytes());
        let base = kernel.param_base as usize;
        bank[base..base + 8].copy_from_slice(&(DATA + 0x1_0000).to_le_bytes());
        bank[base + 8..base + 12].copy_from_slice(&7_u32.to_le_bytes());
        bank[base + 12..base + 16].copy_from_slice(&64_u32.to_le_bytes());
        bank
    }
}

/// A GPU with two channels; one is for the program's descriptors.
struct Bench {
    gpu: Gpu,
    checker: Checker,
    faults: Arc<Faults>,
    page: Arc<Memory>,
    data: Arc<Memory>,
    space: Arc<AddressSpace>,
    /// Ring and USERD of channels 1 and 2.
    rings: [(Arc<Memory>, Arc<Memory>); 2],
}

impl Bench {
    fn new(kernels: &Kernels, ordered: bool) -> Self {
        let faults = Arc::new(Faults::default());
        let checker = Checker::new(if ordered { Tools::ORDERING } else { Tools::empty() });
        let sm = SmOptions { check: Some(checker.clone()), ..SmOptions::default() };
        let gpu = Gpu::start(
            GpuConfig { sm_count: SM_COUNT, sm, ..GpuConfig::default() },
            Arc::clone(&faults) as _,
        )
        .expect("a thread");
        let page = Arc::new(Memory::new("usermode", 0x1_0000).expect("memory"));
        gpu.add_doorbell_page(Arc::clone(&page));
        let space = Arc::new(AddressSpace::new());
        map(&space, CODE, kernels.image.len(), ordered);
        space.view().write(CODE, &kernels.image).expect("mapped");
        let data = map(&space, DATA, DATA_BYTES, ordered);
        space.view().write(DATA + BANK, &kernels.bank()).expect("mapped");
        map(&space, LOCAL, LOCAL_PER_TPC as usize, false);
        let ring = |id| {
            let ring = Arc::new(Memory::new("ring", 4096).expect("memory"));
            let userd = Arc::new(Memory::new("userd", 4096).expect("memory"));
            gpu.bind_channel(ChannelSetup {
                channel_id: id,
                ring: Arc::clone(&ring),
                ring_entries: 4,
                userd: Arc::clone(&userd),
                address_space: Arc::clone(&space),
                group: ChannelGroup::alone(id),
            });
            gpu.add_object(id, u32::from(class::CLASS));
            // As drivers do. Without it a long grid keeps the engine from the other channel.
            gpu.set_preemption(ChannelGroup::alone(id).tsg, Preemption::Instruction);
            (ring, userd)
        };
        let rings = [ring(1), ring(2)];
        Self { gpu, checker, faults, page, data, space, rings }
    }

    /// Submits words to a channel as its first entry.
    fn submit(&self, id: u32, offset: u64, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.space.view().write(DATA + offset, &bytes).expect("mapped");
        let entry = Entry::from(Segment::new(DATA + offset, words.len() as u32)).encode().expect("it fits");
        let (ring, userd) = &self.rings[id as usize - 1];
        ring.store(0, entry as u32);
        ring.store(4, (entry >> 32) as u32);
        userd.store(userd::GP_PUT as usize, 1);
        self.page.store(usermode_c561::Doorbell::ADDRESS as usize, id);
    }

    /// The activity of the program's channel after it has settled, or at the time limit.
    fn settle(&self) -> Activity {
        let start = Instant::now();
        loop {
            let status = self.gpu.status(1).expect("the channel is bound");
            let done = matches!(status.activity, Activity::Faulted)
                || status.activity == Activity::Idle && status.gp_get == 1;
            if done || start.elapsed() > WATCHED {
                return status.activity;
            }
            std::thread::yield_now();
        }
    }

    /// Checks that the other channel can write a semaphore.
    fn check_tame_channel(&self) {
        let mut encoder = Encoder::new(Vec::new());
        let release = ampere_cmd::command::SemaphoreRelease {
            va: DATA + TAME_SEMAPHORE,
            payload: ampere_cmd::command::Payload::Bits32(0x600d),
            wait_for_idle: true,
            timestamp: false,
        };
        encoder.semaphore_release(&release).expect("it fits");
        self.data.store(TAME_SEMAPHORE as usize, 0);
        self.submit(2, TAME_WORDS, &encoder.into_sink());
        let start = Instant::now();
        while self.data.load(TAME_SEMAPHORE as usize) != 0x600d {
            assert!(start.elapsed() < PATIENCE, "the other channel is not served");
            std::thread::yield_now();
        }
    }
}

/// The commands of a program. Writes its descriptors to memory.
fn words(bench: &Bench, kernels: &Kernels, program: &mut Program<'_>) -> Vec<u32> {
    let mut encoder = Encoder::new(Vec::new());
    let mut send = |method: u32, data: &[u32]| {
        encoder.methods(Subchannel::COMPUTE, method, data).expect("a method of the class");
    };
    let pair = |value: u64| [(value >> 32) as u32, value as u32];
    send(class::SetShaderSharedMemoryWindowA::ADDRESS, &pair(SHARED_WINDOW));
    send(class::SetShaderLocalMemoryWindowA::ADDRESS, &pair(LOCAL_WINDOW));
    send(class::SetShaderLocalMemoryA::ADDRESS, &pair(LOCAL));
    send(class::SetShaderLocalMemoryNonThrottledA::ADDRESS, &pair(LOCAL_PER_TPC));
    let fields: Vec<_> = QmdV3_0::fields().collect();
    let at = |slot: u8| DATA + DESCRIPTORS + u64::from(slot % SLOTS) * 256;
    let store = |slot: u8, bytes: &[u8]| bench.space.view().write(at(slot), bytes).expect("mapped");
    let mut qmd = kernels.descriptor(Kernels::NAMES[0]);
    for _ in 0..STEPS {
        if program.rest.is_empty() {
            break;
        }
        match program.byte() % 12 {
            0 => {
                qmd = kernels.descriptor(Kernels::NAMES[usize::from(program.byte()) % Kernels::NAMES.len()]);
            }
            // Sets a field to a value of as many bits.
            1..=3 => {
                let field = fields[usize::from(program.byte()) % fields.len()];
                let value = program.number(4) & ((1 << field.info().width()) - 1);
                qmd.set(field, value).expect("it was cut");
            }
            4 => {
                let mut words = qmd.as_words().to_vec();
                words[usize::from(program.byte()) % QmdV3_0::WORDS] ^= program.number(4) as u32;
                qmd = QmdV3_0::from_slice(&words).expect("as many words");
            }
            5 => {
                let slot = program.byte();
                let bytes: Vec<u8> = qmd.as_words().iter().flat_map(|word| word.to_le_bytes()).collect();
                store(slot, &bytes);
            }
            6 => {
                let slot = program.byte();
                let bytes: Vec<u8> = (0..256).map(|_| program.byte()).collect();
                store(slot, &bytes);
            }
            7 | 8 => {
                let (slot, action) = (program.byte(), program.byte());
                send(class::SendPcasA::ADDRESS, &[(at(slot) >> 8) as u32]);
                send(class::SendSignalingPcas2B::ADDRESS, &[u32::from(action) % 14]);
            }
            9 => {
                let next = program.byte();
                qmd.set(q::DEPENDENT_QMD0_ENABLE, 1_u32).expect("it fits");
                qmd.set(q::DEPENDENT_QMD0_POINTER, at(next) >> 8).expect("it fits");
                qmd.set(q::DEPENDENT_QMD0_ACTION, u64::from(next >> 4 & 7)).expect("it fits");
            }
            10 => send(class::WaitForIdle::ADDRESS, &[0]),
            _ => {
                let method = [
                    class::SetShaderSharedMemoryWindowB::ADDRESS,
                    class::SetShaderLocalMemoryWindowB::ADDRESS,
                    class::SetShaderLocalMemoryB::ADDRESS,
                    class::SetShaderLocalMemoryNonThrottledB::ADDRESS,
                ];
                send(method[usize::from(program.byte()) % method.len()], &[program.number(4) as u32]);
            }
        }
    }
    encoder.into_sink()
}

/// Runs a program, with the order check if its first byte is odd. Returns the behaviour for the fuzzer: the outcome,
/// the words of the fault, and the kinds of the order check's findings.
pub(crate) fn run(data: &[u8]) -> BTreeSet<u64> {
    let kernels = Kernels::new();
    let mut program = Program { rest: data };
    let bench = Bench::new(&kernels, program.byte() & 1 != 0);
    let words = words(&bench, &kernels, &mut program);
    bench.submit(1, WILD_WORDS, &words);
    let activity = bench.settle();
    bench.check_tame_channel();
    bench.gpu.stop_channels(&[1, 2]);
    assert_eq!(bench.gpu.status(1), None, "a stopped channel is gone");
    let faults = bench.faults.0.lock().expect("the GPU's thread does not panic with it");
    assert!(faults.len() <= 1, "one fault halts a channel: {faults:?}");
    let mut hasher = DefaultHasher::new();
    match faults.first() {
        Some((id, fault)) => {
            assert_eq!(*id, 1, "the other channel does nothing wrong");
            let text = fault.to_string();
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let words = words.filter(|word| !word.starts_with(|c: char| c.is_ascii_digit()));
            words.for_each(|word| word.hash(&mut hasher));
        }
        None => core::mem::discriminant(&activity).hash(&mut hasher),
    }
    let found = bench.checker.findings().into_iter().map(|finding| {
        let mut hasher = DefaultHasher::new();
        let access = finding.access.expect("the finding has an access");
        (finding.kind, access.space).hash(&mut hasher);
        hasher.finish()
    });
    core::iter::once(hasher.finish()).chain(found).collect()
}
