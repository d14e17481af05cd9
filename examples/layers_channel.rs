//! Section 4 of docs/guide.md: a channel, and every word that a launch needs.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ampere_cmd::command::{Payload, PcasAction, SemaphoreRelease};
use ampere_cmd::gpfifo::{Entry, Segment};
use ampere_cmd::qmd::{QmdV3_0, shared_memory_config, v3_0 as field};
use ampere_cmd::{Encoder, Subchannel};
use anyhow::{Result, bail, ensure};
use cubin::Cubin;
use nvgpu_channel::{Gpu, LOCAL_WINDOW, MapOptions, SHARED_WINDOW};
use orin_cli::say;

const CUBIN: &[u8] = include_bytes!("../kernels/square_plus_one.cubin");
const N: u32 = 1000;
const BLOCK: u32 = 256;

fn main() -> ExitCode {
    examples::run(program)
}

fn program() -> Result<()> {
    let gpu = Gpu::open(&examples::door()?)?;
    let chip = gpu.characteristics();
    let space = gpu.address_space()?;
    let subcontext = gpu.tsg()?.subcontext(&space)?;
    let mut channel = subcontext.channel(chip.compute_class()).label("square").open()?;

    // Memory that CPU and GPU share. A mapping keeps its buffer alive.
    let memory = |bytes: u64, label| -> Result<_> {
        let buffer = Arc::new(gpu.nvmap().buffer(bytes).label(label).allocate()?);
        Ok(space.map(&buffer, MapOptions::default())?)
    };
    let cubin = Cubin::parse(CUBIN)?;
    let kernel = cubin.kernel("square_plus_one")?;
    let code = memory(cubin.image_bytes(), "code")?;
    let out = memory(u64::from(N) * 4, "out")?;
    let work = memory(8192, "constants, descriptor, semaphore, pushbuffer")?;
    let (bank0_at, qmd_at, semaphore_at, words_at) = (0, 1024, 2048, 4096);

    // The machine code, relocated for its GPU address.
    let code_va = code.va().get() + kernel.code_offset;
    code.buffer().copy_from_slice(0, &cubin.image_at(code.va().get())?)?;

    // Constant bank 0: the driver's words that the compiler expects, then the kernel's parameters.
    let mut bank0 = vec![0_u32; (kernel.constant0_bytes.next_multiple_of(16) / 4) as usize];
    bank0[..6].copy_from_slice(&[BLOCK, 1, 1, N.div_ceil(BLOCK), 1, 1]);
    let parameters = kernel.param_base as usize / 4;
    let out_va = out.va().get();
    bank0[parameters..parameters + 3].copy_from_slice(&[out_va as u32, (out_va >> 32) as u32, N]);
    work.buffer().copy_from_slice(bank0_at, &bank0)?;

    // The launch descriptor (QMD).
    let bank0_va = work.va().get() + bank0_at as u64;
    let shared_bytes = 1024_u32; // 1 KiB that the system reserves per block
    let shared_config = shared_memory_config(8).unwrap_or_default(); // the smallest configuration that holds it, 8 KiB
    let mut qmd = QmdV3_0::new();
    for (field, value) in [
        (field::QMD_MAJOR_VERSION, 3),
        (field::QMD_GROUP_ID, 0x3f),
        (field::API_VISIBLE_CALL_LIMIT, 1),
        (field::SAMPLER_INDEX, 1),
        (field::CWD_MEMBAR_TYPE, 1),
        (field::CTA_RASTER_WIDTH, N.div_ceil(BLOCK).into()),
        (field::CTA_RASTER_HEIGHT, 1),
        (field::CTA_RASTER_DEPTH, 1),
        (field::CTA_THREAD_DIMENSION0, BLOCK.into()),
        (field::CTA_THREAD_DIMENSION1, 1),
        (field::CTA_THREAD_DIMENSION2, 1),
        (field::PROGRAM_ADDRESS_LOWER, code_va & 0xffff_ffff),
        (field::PROGRAM_ADDRESS_UPPER, code_va >> 32),
        (field::SASS_VERSION, 0x87),
        (field::REGISTER_COUNT_V, kernel.registers.into()),
        (field::BARRIER_COUNT, kernel.barriers.into()),
        (field::SHARED_MEMORY_SIZE, shared_bytes.into()),
        (field::MIN_SM_CONFIG_SHARED_MEM_SIZE, shared_config.into()),
        (field::TARGET_SM_CONFIG_SHARED_MEM_SIZE, shared_config.into()),
        (field::MAX_SM_CONFIG_SHARED_MEM_SIZE, shared_config.into()),
        (field::CONSTANT_BUFFER_VALID.at(0)?, 1),
        (field::CONSTANT_BUFFER_ADDR_LOWER.at(0)?, bank0_va & 0xffff_ffff),
        (field::CONSTANT_BUFFER_ADDR_UPPER.at(0)?, bank0_va >> 32),
        (field::CONSTANT_BUFFER_SIZE_SHIFTED4.at(0)?, bank0.len() as u64 / 4),
    ] {
        qmd.set(field, value)?;
    }
    work.buffer().copy_from_slice(qmd_at, qmd.as_words())?;

    // The commands: engine class, memory windows, launch, and a semaphore release that marks completion.
    let semaphore = SemaphoreRelease {
        va: work.va().get() + semaphore_at as u64,
        payload: Payload::Bits64(1),
        wait_for_idle: true,
        timestamp: true,
    };
    let mut encoder = Encoder::new(Vec::new());
    encoder.set_object(Subchannel::COMPUTE, chip.compute_class())?;
    encoder.shader_local_memory_window(LOCAL_WINDOW.get())?;
    encoder.shader_shared_memory_window(SHARED_WINDOW.get())?;
    encoder.invalidate_shader_caches_no_wfi()?;
    encoder.launch(work.va().get() + qmd_at as u64, PcasAction::PrefetchSchedule)?;
    encoder.semaphore_release(&semaphore)?;
    let words = encoder.into_sink();
    work.buffer().copy_from_slice(words_at, &words)?;

    // Write the ring entry, advance GP_PUT, ring the doorbell; then poll the semaphore.
    let segment = Segment::new(work.va().get() + words_at as u64, u32::try_from(words.len())?);
    channel.submit(Entry::from(segment).encode()?)?;
    let start = Instant::now();
    while work.buffer().load_u64(semaphore_at, Ordering::Acquire) != 1 {
        if let Some(fault) = channel.error_notifier() {
            return Err(fault.into());
        }
        if start.elapsed() > Duration::from_secs(10) {
            bail!("the GPU is silent");
        }
    }

    let mut result = vec![0.0_f32; N as usize];
    out.buffer().copy_to_slice(0, &mut result)?;
    let right = result.iter().enumerate().all(|(i, &value)| value == (i * i + 1) as f32);
    ensure!(right, "wrong: {:?} ...", &result[..4]);
    say!("{} words, {} squares, all right", words.len(), result.len())?;
    Ok(())
}
