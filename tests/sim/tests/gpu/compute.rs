//! Launches: real kernels, chains, completions, aborts.

use core::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ampere_cmd::command::{PcasAction, SemaphoreRelease};
use ampere_cmd::qmd::{Field, QmdV3_0, shared_memory_config, v3_0 as q};
use ampere_cmd::{Encoder, Subchannel, compute_c7c0 as class};
use cubin::Cubin;
use gpu_hal::chip::SM_8_7;
use orin_sim::gpu::{Activity, ChannelFault};
use orin_sim::mmu::Access;
use orin_sim::sm::SmFaultCause;

use crate::rig::{Rig, Ring, SEMAPHORES, acquire, release};

const CODE: u64 = 0x12_1000_0000;
pub(crate) const DATA: u64 = 0x15_0000_0000;
const DATA_BYTES: usize = 1 << 20;
pub(crate) const LOCAL: u64 = 0x20_0000_0000;
/// Local memory per TPC: the 96 warps of two SMs with 1 KiB per thread.
pub(crate) const LOCAL_PER_TPC: u64 = 96 * 32 * 1024;
pub(crate) const SHARED_WINDOW: u64 = 0x7294_0000_0000;
pub(crate) const LOCAL_WINDOW: u64 = 0x7293_0000_0000;

/// The address of constant bank 0 of launch `index`.
pub(crate) fn bank_at(index: u64) -> u64 {
    DATA + 0x8_0000 + index * 0x400
}
pub(crate) fn qmd_at(index: u64) -> u64 {
    bank_at(index) + 0x300
}

/// A rig with the kernels of one cubin in memory.
pub(crate) struct Kernels {
    pub(crate) rig: Rig,
    cubin: Cubin,
}

impl Kernels {
    fn new(file: &[u8]) -> Self {
        Self::on(Rig::new(), file)
    }

    pub(crate) fn on(rig: Rig, file: &[u8]) -> Self {
        let cubin = Cubin::parse(file).unwrap();
        let image = cubin.image_at(CODE).unwrap();
        rig.map(CODE, image.len().next_multiple_of(4096));
        rig.write(CODE, &image);
        rig.map(DATA, DATA_BYTES);
        rig.map(LOCAL, LOCAL_PER_TPC as usize * 4);
        Self { rig, cubin }
    }

    /// One past the last address of the code's mapping.
    pub(crate) fn code_end(&self) -> u64 {
        CODE + self.rig.space.view().piece(CODE, usize::MAX, Access::Read).unwrap() as u64
    }

    /// Address and length of a kernel's code.
    pub(crate) fn program(&self, kernel: &str) -> (u64, u64) {
        let kernel = self.cubin.kernel(kernel).unwrap();
        (CODE + kernel.code_offset, kernel.code_bytes)
    }

    pub(crate) fn channel(&self, id: u32) -> Ring<'_> {
        let mut ring = self.rig.channel(id, 1024);
        self.set_up(&mut ring);
        ring
    }

    /// Sends the commands that a channel needs before its first launch.
    pub(crate) fn set_up(&self, ring: &mut Ring<'_>) {
        ring.commands(|encoder| {
            encoder.set_object(Subchannel::COMPUTE, u32::from(class::CLASS)).unwrap();
            encoder.shader_shared_memory_window(SHARED_WINDOW).unwrap();
            encoder.shader_local_memory_window(LOCAL_WINDOW).unwrap();
            encoder.shader_local_memory(LOCAL).unwrap();
            encoder.shader_local_memory_size(LOCAL_PER_TPC, 0xff).unwrap();
        });
    }

    /// Writes bank 0 of launch `index`, and returns its descriptor.
    pub(crate) fn prepare(
        &self,
        kernel: &str,
        index: u64,
        grid: [u32; 3],
        block: [u32; 3],
        arguments: &[u8],
    ) -> QmdV3_0 {
        let kernel = self.cubin.kernel(kernel).unwrap();
        let mut bank = vec![0; kernel.constant0_bytes.next_multiple_of(16) as usize];
        assert!(bank.len() <= 0x300 && arguments.len() == kernel.param_bytes as usize);
        for (word, value) in block.iter().chain(&grid).enumerate() {
            bank[word * 4..][..4].copy_from_slice(&value.to_le_bytes());
        }
        for (at, value) in [(0x18, SHARED_WINDOW), (0x20, LOCAL_WINDOW), (0x28, 0xff_fdc0)] {
            bank[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
        }
        bank[kernel.param_base as usize..][..arguments.len()].copy_from_slice(arguments);
        self.rig.write(bank_at(index), &bank);

        let mut qmd = QmdV3_0::new();
        let shared = (kernel.shared_bytes + 1024).next_multiple_of(128);
        let config = SM_8_7.shared.config_for(shared).unwrap();
        let program = CODE + kernel.code_offset;
        for (field, value) in [
            (q::QMD_MAJOR_VERSION, 3),
            (q::QMD_GROUP_ID, 0x3f),
            (q::SM_GLOBAL_CACHING_ENABLE, 1),
            (q::API_VISIBLE_CALL_LIMIT, q::API_VISIBLE_CALL_LIMIT_NO_CHECK),
            (q::CWD_MEMBAR_TYPE, q::CWD_MEMBAR_TYPE_L1_SYSMEMBAR),
            (q::CTA_RASTER_WIDTH, u64::from(grid[0])),
            (q::CTA_RASTER_HEIGHT, u64::from(grid[1])),
            (q::CTA_RASTER_DEPTH, u64::from(grid[2])),
            (q::CTA_THREAD_DIMENSION0, u64::from(block[0])),
            (q::CTA_THREAD_DIMENSION1, u64::from(block[1])),
            (q::CTA_THREAD_DIMENSION2, u64::from(block[2])),
            (q::SHARED_MEMORY_SIZE, u64::from(shared)),
            (q::MIN_SM_CONFIG_SHARED_MEM_SIZE, u64::from(config)),
            (q::TARGET_SM_CONFIG_SHARED_MEM_SIZE, u64::from(config)),
            (q::MAX_SM_CONFIG_SHARED_MEM_SIZE, u64::from(shared_memory_config(164).unwrap())),
            (q::REGISTER_COUNT_V, u64::from(kernel.registers)),
            (q::BARRIER_COUNT, u64::from(kernel.barriers)),
            (q::SHADER_LOCAL_MEMORY_HIGH_SIZE, u64::from((kernel.local_bytes + 0x240).next_multiple_of(32))),
            (q::PROGRAM_ADDRESS_LOWER, program & 0xffff_ffff),
            (q::PROGRAM_ADDRESS_UPPER, program >> 32),
            (q::SASS_VERSION, 0x87),
        ] {
            qmd.set(field, value).unwrap();
        }
        let mut constant = |bank: u8, va: u64, bytes: u64| {
            let at = u32::from(bank);
            qmd.set(q::CONSTANT_BUFFER_VALID.at(at).unwrap(), true).unwrap();
            qmd.set(q::CONSTANT_BUFFER_ADDR_LOWER.at(at).unwrap(), va & 0xffff_ffff).unwrap();
            qmd.set(q::CONSTANT_BUFFER_ADDR_UPPER.at(at).unwrap(), va >> 32).unwrap();
            qmd.set(q::CONSTANT_BUFFER_SIZE_SHIFTED4.at(at).unwrap(), bytes.div_ceil(16)).unwrap();
            qmd.set(q::CONSTANT_BUFFER_INVALIDATE.at(at).unwrap(), true).unwrap();
        };
        constant(0, bank_at(index), bank.len() as u64);
        for bank in &kernel.constants {
            constant(bank.bank, CODE + bank.offset, u64::from(bank.bytes));
        }
        qmd
    }

    pub(crate) fn store(&self, index: u64, qmd: &QmdV3_0) {
        let bytes: Vec<u8> = qmd.as_words().iter().flat_map(|word| word.to_le_bytes()).collect();
        self.rig.write(qmd_at(index), &bytes);
    }
}

pub(crate) fn basics() -> Kernels {
    Kernels::new(include_bytes!("../../../../kernels/basics.cubin"))
}

/// [`basics`] with the order check.
pub(crate) fn ordered() -> Kernels {
    Kernels::on(Rig::with_order_check(), include_bytes!("../../../../kernels/basics.cubin"))
}

pub(crate) fn faulty() -> Kernels {
    Kernels::new(include_bytes!("../../../../kernels/faults.cubin"))
}

/// Arguments of a pointer and two words.
pub(crate) fn arguments(pointer: u64, words: &[u32]) -> Vec<u8> {
    let mut bytes = pointer.to_le_bytes().to_vec();
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

pub(crate) fn launch(encoder: &mut Encoder<Vec<u32>>, index: u64, action: PcasAction) {
    encoder.launch(qmd_at(index), action).unwrap();
}

pub(crate) fn set_release(qmd: &mut QmdV3_0, va: u64, payload: u64, more: &[(Field<q::Layout>, u64)]) {
    let fields = [
        (q::RELEASE0_ENABLE, 1),
        (q::RELEASE0_ADDRESS_LOWER, va & 0xffff_ffff),
        (q::RELEASE0_ADDRESS_UPPER, va >> 32),
        (q::RELEASE0_PAYLOAD_LOWER, payload & 0xffff_ffff),
        (q::RELEASE0_PAYLOAD_UPPER, payload >> 32),
    ];
    for &(field, value) in fields.iter().chain(more) {
        qmd.set(field, value).unwrap();
    }
}

#[test]
fn vectors_are_added() {
    let kernels = Kernels::new(include_bytes!("../../../../kernels/vector_add.cubin"));
    let rig = &kernels.rig;
    let n = 10_000u32;
    let (a, b, c) = (DATA, DATA + 0x1_0000, DATA + 0x2_0000);
    let floats = |scale: f32| (0..n).flat_map(move |i| (i as f32 * scale).to_le_bytes()).collect::<Vec<u8>>();
    rig.write(a, &floats(1.0));
    rig.write(b, &floats(0.5));
    let mut bytes = [a, b, c].iter().flat_map(|va| va.to_le_bytes()).collect::<Vec<u8>>();
    bytes.extend(n.to_le_bytes());
    let qmd = kernels.prepare("vector_add", 0, [n.div_ceil(256), 1, 1], [256, 1, 1], &bytes);
    kernels.store(0, &qmd);
    let mut ring = kernels.channel(511);
    ring.commands(|encoder| {
        encoder.invalidate_shader_caches_no_wfi().unwrap();
        launch(encoder, 0, PcasAction::PrefetchSchedule);
        encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
    });
    rig.wait_for(0, 1);
    let sums = rig.words(c, n as usize);
    for (i, sum) in sums.into_iter().enumerate() {
        assert_eq!(f32::from_bits(sum), i as f32 * 1.5, "element {i}");
    }
}

#[test]
fn a_descriptor_releases_its_semaphores() {
    let kernels = basics();
    let rig = &kernels.rig;
    let mut ring = kernels.channel(511);
    let arguments = arguments(DATA, &[0xabcd, 64]);
    let mut qmd = kernels.prepare("fill_u32", 0, [1, 1, 1], [64, 1, 1], &arguments);
    // Release 0 with four words and 64 bits, 1 as a sum into one word, 2 with two words and a trap.
    set_release(
        &mut qmd,
        SEMAPHORES,
        7 << 32 | 5,
        &[(q::RELEASE0_PAYLOAD64B, 1), (q::RELEASE0_MEMBAR_TYPE, 1)],
    );
    for (field, value) in [
        (q::RELEASE1_ENABLE, 1),
        (q::RELEASE1_ADDRESS_LOWER, 0x14),
        (q::RELEASE1_ADDRESS_UPPER, 0x12),
        (q::RELEASE1_PAYLOAD_LOWER, 2),
        (q::RELEASE1_STRUCTURE_SIZE, q::RELEASE1_STRUCTURE_SIZE_SEMAPHORE_ONE_WORD),
        (q::RELEASE1_REDUCTION_ENABLE, 1),
        (q::RELEASE1_REDUCTION_OP, q::RELEASE1_REDUCTION_OP_RED_ADD),
        (q::RELEASE2_ENABLE, 1),
        (q::RELEASE2_ADDRESS_LOWER, 0x28),
        (q::RELEASE2_ADDRESS_UPPER, 0x12),
        (q::RELEASE2_PAYLOAD_LOWER, 3),
        (q::RELEASE2_PAYLOAD_UPPER, 4),
        (q::RELEASE2_STRUCTURE_SIZE, q::RELEASE2_STRUCTURE_SIZE_SEMAPHORE_TWO_WORDS),
        (q::RELEASE2_TRAP_TYPE, q::RELEASE2_TRAP_TYPE_TRAP_UNCONDITIONAL),
    ] {
        qmd.set(field, value).unwrap();
    }
    kernels.store(0, &qmd);
    rig.semaphores.store(0x14, 40);
    rig.semaphores.store(0x2c, 9);
    ring.commands(|encoder| launch(encoder, 0, PcasAction::InvalidateCopySchedule));
    rig.wait_for(0x28, 3);
    assert_eq!((rig.semaphores.load(0), rig.semaphores.load(4)), (5, 7));
    assert_ne!(rig.time(0), 0);
    assert_eq!(rig.semaphores.load(0x14), 42);
    assert_eq!(rig.semaphores.load(0x2c), 0, "two words of a 32-bit payload end in zero");
    assert_eq!(rig.words(DATA, 65)[63..], [0xabcd, 0]);
    rig.wait_interrupts(1);
}

#[test]
fn host_overtakes_a_grid_that_it_does_not_wait_for() {
    let kernels = basics();
    let rig = &kernels.rig;
    let mut ring = kernels.channel(511);
    let qmd = kernels.prepare("spin", 0, [1, 1, 1], [32, 1, 1], &arguments(DATA, &[100_000]));
    kernels.store(0, &qmd);
    let stamped = |offset, wait_for_idle| SemaphoreRelease {
        wait_for_idle,
        timestamp: true,
        ..release(SEMAPHORES + offset, 1)
    };
    ring.commands(|encoder| {
        encoder.semaphore_release(&stamped(0, true)).unwrap();
        launch(encoder, 0, PcasAction::InvalidateCopySchedule);
        encoder.semaphore_release(&stamped(0x10, false)).unwrap();
        encoder.semaphore_release(&stamped(0x20, true)).unwrap();
    });
    rig.wait_for(0x20, 1);
    let (overtaken, whole) = (rig.time(0x10) - rig.time(0), rig.time(0x20) - rig.time(0));
    assert!(overtaken * 2 < whole, "{overtaken} ns of {whole} ns");
}

#[test]
fn grids_of_a_chain_follow_each_other() {
    let kernels = basics();
    let rig = &kernels.rig;
    let mut ring = kernels.channel(511);
    let grid = |index| kernels.prepare("increment", index, [1, 1, 1], [32, 1, 1], &arguments(DATA, &[32]));
    let depend = |qmd: &mut QmdV3_0, next: u64, action: u64| {
        qmd.set(q::DEPENDENT_QMD0_ENABLE, 1u32).unwrap();
        qmd.set(q::DEPENDENT_QMD0_ACTION, action).unwrap();
        qmd.set(q::DEPENDENT_QMD0_POINTER, qmd_at(next) >> 8).unwrap();
        qmd.set(q::DEPENDENT_QMD0_PREFETCH, 1u32).unwrap();
    };
    let actions = [
        q::DEPENDENT_QMD0_ACTION_QMD_SCHEDULE,
        q::DEPENDENT_QMD0_ACTION_QMD_INVALIDATE_COPY_SCHEDULE,
        q::DEPENDENT_QMD0_ACTION_QMD_DECREMENT_DEPENDENCE,
    ];
    for (index, action) in actions.into_iter().enumerate() {
        let mut qmd = grid(index as u64);
        depend(&mut qmd, index as u64 + 1, action);
        kernels.store(index as u64, &qmd);
    }
    // The last one has two dependences: the previous grid and its own launch.
    let mut last = grid(3);
    last.set(q::DEPENDENCE_COUNTER, 2u32).unwrap();
    kernels.store(3, &last);
    ring.commands(|encoder| {
        launch(encoder, 0, PcasAction::PrefetchSchedule);
        encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
    });
    rig.wait_for(0, 1);
    assert!(rig.words(DATA, 32).iter().all(|&word| word == 3), "the fourth has a dependence left");
    ring.commands(|encoder| {
        launch(encoder, 3, PcasAction::DecrementDependence);
        encoder.semaphore_release(&release(SEMAPHORES, 2)).unwrap();
    });
    rig.wait_for(0, 2);
    assert!(rig.words(DATA, 32).iter().all(|&word| word == 4));
}

#[test]
fn a_reused_descriptor_is_safe_when_copied_only() {
    let kernels = basics();
    let rig = &kernels.rig;
    let mut ring = kernels.channel(511);
    let slow = kernels.prepare("spin", 1, [1, 1, 1], [32, 1, 1], &arguments(DATA + 0x100, &[20_000]));
    kernels.store(1, &slow);
    for (action, expected) in [(PcasAction::InvalidateCopySchedule, 1), (PcasAction::PrefetchSchedule, 2)] {
        rig.semaphores.store(0, 0);
        rig.semaphores.store(0x20, 0);
        let with_payload = |payload| {
            let mut qmd = kernels.prepare("empty", 0, [1, 1, 1], [32, 1, 1], &[]);
            set_release(&mut qmd, SEMAPHORES + 0x20, payload, &[]);
            kernels.store(0, &qmd);
        };
        with_payload(1);
        let early = SemaphoreRelease { wait_for_idle: false, ..release(SEMAPHORES, 1) };
        ring.commands(|encoder| {
            launch(encoder, 1, PcasAction::InvalidateCopySchedule);
            launch(encoder, 0, action);
            encoder.semaphore_release(&early).unwrap();
            encoder.wait_for_idle(ampere_cmd::host_c76f::WfiScope::All).unwrap();
            encoder.semaphore_release(&release(SEMAPHORES, 2)).unwrap();
        });
        // Host has processed the launch, whose grid waits after the slow one: rewrite the descriptor.
        let deadline = Instant::now() + Duration::from_secs(20);
        while rig.semaphores.load(0) == 0 {
            assert!(Instant::now() < deadline);
            std::hint::spin_loop();
        }
        with_payload(2);
        rig.wait_for(0, 2);
        if action == PcasAction::InvalidateCopySchedule {
            assert_eq!(rig.semaphores.load(0x20), expected);
        } else {
            // In place the driver races with the scheduler: either value is possible, mostly the new one here.
            assert!([1, expected].contains(&rig.semaphores.load(0x20)));
        }
    }
}

#[test]
fn copies_wait_for_grids_on_the_other_subchannel() {
    let kernels = basics();
    let rig = &kernels.rig;
    let mut ring = kernels.channel(511);
    let count = 4096u32;
    let fill =
        kernels.prepare("fill_u32", 0, [count / 256, 1, 1], [256, 1, 1], &arguments(DATA, &[9, count]));
    kernels.store(0, &fill);
    let copy = ampere_cmd::command::LinearCopy {
        source: DATA,
        destination: DATA + 0x1_0000,
        bytes: u64::from(count) * 4,
    };
    ring.commands(|encoder| {
        launch(encoder, 0, PcasAction::InvalidateCopySchedule);
        encoder.linear_copy(&copy).unwrap();
        encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
    });
    rig.wait_for(0, 1);
    assert!(rig.words(DATA + 0x1_0000, count as usize).iter().all(|&word| word == 9));
}

#[test]
fn report_semaphores_follow_the_grids() {
    let kernels = basics();
    let rig = &kernels.rig;
    let mut ring = kernels.channel(511);
    let spin = kernels.prepare("spin", 0, [1, 1, 1], [32, 1, 1], &arguments(DATA, &[20_000]));
    let mut spin = spin;
    set_release(&mut spin, SEMAPHORES, 1, &[]);
    kernels.store(0, &spin);
    ring.commands(|encoder| {
        launch(encoder, 0, PcasAction::InvalidateCopySchedule);
        encoder
            .sequence(
                Subchannel::COMPUTE,
                &(
                    class::SetReportSemaphoreA { offset_upper: (SEMAPHORES >> 32) as u32 },
                    class::SetReportSemaphoreB { offset_lower: 0x10 },
                    class::SetReportSemaphoreC { payload: 5 },
                    class::SetReportSemaphoreD::default(),
                ),
            )
            .unwrap();
        encoder
            .sequence(
                Subchannel::COMPUTE,
                &(
                    class::SetReportSemaphorePayloadLower { payload_lower: 6 },
                    class::SetReportSemaphorePayloadUpper { payload_upper: 7 },
                    class::SetReportSemaphoreAddressLower { lower: 0x28 },
                    class::SetReportSemaphoreAddressUpper { upper: 0x12 },
                    class::ReportSemaphoreExecute {
                        structure_size: class::ReportSemaphoreExecuteStructureSize::SemaphoreTwoWords,
                        payload_size64: true,
                        ..Default::default()
                    },
                ),
            )
            .unwrap();
        encoder.method(Subchannel::COMPUTE, &class::WaitForIdle::default()).unwrap();
    });
    rig.wait_for(0x28, 6);
    assert_eq!(rig.semaphores.load(0x2c), 7);
    assert_eq!(rig.semaphores.load(0x10), 5);
    assert!(rig.time(0) <= rig.time(0x10), "the report came before the grid's own release");
}

#[test]
fn an_endless_grid_is_aborted_and_others_run_concurrently() {
    let kernels = faulty();
    let rig = &kernels.rig;
    let mut bytes = DATA.to_le_bytes().to_vec();
    bytes.extend((DATA + 0x100).to_le_bytes());
    let qmd = kernels.prepare("fault_endless", 0, [2, 1, 1], [64, 1, 1], &bytes);
    kernels.store(0, &qmd);
    let mut stuck = kernels.channel(511);
    stuck.commands(|encoder| launch(encoder, 0, PcasAction::InvalidateCopySchedule));
    let running = rig.wait_activity(
        511,
        |activity| matches!(activity, Activity::RunningGrid { program_va, .. } if *program_va != 0),
    );
    let program = CODE + kernels.cubin.kernel("fault_endless").unwrap().code_offset;
    assert_eq!(running, Activity::RunningGrid { qmd_va: qmd_at(0), program_va: program, queued: 0 });
    let mut other = rig.channel(510, 16);
    other.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap());
    rig.wait_for(0, 1);
    let begin = Instant::now();
    rig.gpu.stop_channels(&[511]);
    assert!(begin.elapsed() < Duration::from_secs(2), "took {:?}", begin.elapsed());
    // The grid is gone: it does not react to the awaited word.
    rig.write(DATA, &[1, 0, 0, 0]);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(rig.words(DATA + 0x100, 1), [0]);
}

#[test]
fn dropping_the_gpu_ends_running_grids() {
    let kernels = faulty();
    let mut bytes = DATA.to_le_bytes().to_vec();
    bytes.extend((DATA + 0x100).to_le_bytes());
    kernels.store(0, &kernels.prepare("fault_endless", 0, [1, 1, 1], [32, 1, 1], &bytes));
    let mut ring = kernels.channel(511);
    ring.commands(|encoder| launch(encoder, 0, PcasAction::InvalidateCopySchedule));
    kernels.rig.wait_activity(511, |activity| matches!(activity, Activity::RunningGrid { .. }));
    drop(ring);
    let begin = Instant::now();
    drop(kernels);
    assert!(begin.elapsed() < Duration::from_secs(2), "took {:?}", begin.elapsed());
}

#[test]
fn a_grid_ended_by_the_cpu_finishes() {
    let kernels = faulty();
    let rig = &kernels.rig;
    let mut bytes = DATA.to_le_bytes().to_vec();
    bytes.extend((DATA + 0x100).to_le_bytes());
    let qmd = kernels.prepare("fault_endless", 0, [1, 1, 1], [32, 1, 1], &bytes);
    kernels.store(0, &qmd);
    let mut ring = kernels.channel(511);
    ring.commands(|encoder| {
        launch(encoder, 0, PcasAction::InvalidateCopySchedule);
        encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
    });
    rig.wait_activity(511, |activity| matches!(activity, Activity::RunningGrid { .. }));
    assert_eq!(rig.semaphores.load(0), 0);
    let view = rig.space.view();
    let word = view.pointer(DATA, 4, Access::Write).unwrap();
    // SAFETY: an aligned word that the view keeps mapped; the grid reads it concurrently.
    unsafe { AtomicU32::from_ptr(word.cast()) }.store(1, Ordering::Relaxed);
    rig.wait_for(0, 1);
}

#[test]
fn sm_faults_end_the_channel_and_name_the_instruction() {
    let kernels = faulty();
    let rig = &kernels.rig;
    let write = kernels.prepare("fault_write", 0, [1, 1, 1], [1, 1, 1], &arguments(0x99_0000_0000, &[7]));
    kernels.store(0, &write);
    let mut ring = kernels.channel(511);
    ring.commands(|encoder| {
        launch(encoder, 0, PcasAction::InvalidateCopySchedule);
        encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
    });
    let (id, fault) = rig.fault();
    let ChannelFault::Sm(fault) = fault else { panic!("{fault}") };
    assert_eq!((id, fault.block, fault.thread), (511, [0; 3], [0; 3]));
    let SmFaultCause::Mmu(mmu) = fault.cause else { panic!("{fault}") };
    assert_eq!(mmu.va, 0x99_0000_0000);
    let code = kernels.cubin.kernel("fault_write").unwrap();
    assert!((CODE + code.code_offset..CODE + code.code_offset + code.code_bytes).contains(&fault.pc));
    assert_eq!(rig.semaphores.load(0), 0, "the release behind the grid did not happen");
    assert_eq!(rig.gpu.status(511).unwrap().activity, Activity::Faulted);
}

#[test]
fn many_launches_pass_through_a_short_queue() {
    let kernels = basics();
    let rig = &kernels.rig;
    let mut ring = kernels.channel(511);
    let qmd = kernels.prepare("increment", 0, [1, 1, 1], [32, 1, 1], &arguments(DATA, &[32]));
    kernels.store(0, &qmd);
    ring.commands(|encoder| {
        encoder.semaphore_acquire(&acquire(SEMAPHORES + 0x10, 1)).unwrap();
        (0..1000).for_each(|_| launch(encoder, 0, PcasAction::InvalidateCopySchedule));
        encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
    });
    rig.semaphores.store(0x10, 1);
    rig.wait_for(0, 1);
    assert!(rig.words(DATA, 32).iter().all(|&word| word == 1000));
}

#[test]
fn a_small_launch_takes_microseconds() {
    let kernels = basics();
    let mut ring = kernels.channel(511);
    let qmd = kernels.prepare("empty", 0, [1, 1, 1], [32, 1, 1], &[]);
    kernels.store(0, &qmd);
    let mut best = Duration::MAX;
    for value in 1..=200 {
        let begin = Instant::now();
        ring.commands(|encoder| {
            launch(encoder, 0, PcasAction::InvalidateCopySchedule);
            encoder.semaphore_release(&release(SEMAPHORES, value)).unwrap();
        });
        kernels.rig.wait_for(0, value);
        best = best.min(begin.elapsed());
    }
    assert!(best < Duration::from_millis(1), "the fastest of 200 launches took {best:?}");
}
