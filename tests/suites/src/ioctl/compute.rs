//! Launches one kernel without the queue layer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ampere_cmd::command::{Payload, PcasAction, SemaphoreRelease, SmLayout, local_memory_size};
use ampere_cmd::pushbuffer::Subchannel;
use ampere_cmd::qmd::{QmdV3_0, v3_0 as field};
use cubin::Cubin;
use gpu_hal::chip::{LocalMemory, SM_8_7};
use nvgpu_channel::{LOCAL_WINDOW, SHARED_WINDOW};
use nvmap::CacheMode;

use super::support::{Rig, await_gpu, submit, words};
use test_harness::{Check, Context};

/// Threads of the launch; one block.
const THREADS: u32 = 32;
/// Semaphore payload that signals completion.
const DONE: u32 = 0xdead;
/// Local memory layout of the threads.
const LOCAL: LocalMemory = SM_8_7.local;
/// Offsets of constant bank 0 and the launch descriptor in their buffer.
const BANK0: u64 = 0;
const QMD: u64 = 4096;

/// The fixture: `square_plus_one(float *out, unsigned n)`.
fn fixture() -> Result<Cubin, cubin::Error> {
    Cubin::parse(include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/square_plus_one.cubin")))
}

pub(super) fn cubin(context: &Context) -> Check {
    let cubin = fixture()?;
    let kernel = cubin.kernel("square_plus_one")?;
    let sizes: Vec<_> = kernel.params.iter().map(|param| param.bytes).collect();
    context.note(format!("{} bytes of code, {} registers", kernel.code_bytes, kernel.registers));
    assert_eq!((cubin.sm(), sizes), (87, vec![8, 4]));
    assert!(kernel.code_bytes > 0 && kernel.registers > 0);
    cubin.check_arch(87)?;
    Ok(())
}

/// Constant bank 0: the driver-supplied values that NVIDIA's compiler expects, then the parameters.
fn bank0(kernel: &cubin::Kernel, out: u64) -> Vec<u8> {
    let mut bank = vec![0_u8; (kernel.constant0_bytes as usize).next_multiple_of(256)];
    let mut put = |at: usize, bytes: &[u8]| bank[at..at + bytes.len()].copy_from_slice(bytes);
    for (at, size) in [(0, THREADS), (4, 1), (8, 1), (12, 1), (16, 1), (20, 1)] {
        put(at, &size.to_le_bytes());
    }
    put(0x18, &SHARED_WINDOW.get().to_le_bytes());
    put(0x20, &LOCAL_WINDOW.get().to_le_bytes());
    put(0x28, &LOCAL.stack_pointer().to_le_bytes());
    let base = kernel.param_base as usize;
    put(base + usize::from(kernel.params[0].offset), &out.to_le_bytes());
    put(base + usize::from(kernel.params[1].offset), &THREADS.to_le_bytes());
    bank
}

/// The launch descriptor.
fn descriptor(
    kernel: &cubin::Kernel,
    code: u64,
    bank: u64,
) -> Result<QmdV3_0, Box<dyn std::error::Error + Send + Sync>> {
    let no_room = "no shared-memory configuration is that large";
    let shared = SM_8_7.shared.descriptor_bytes(kernel.shared_bytes).ok_or(no_room)?;
    let config = SM_8_7.shared.config_for(shared).ok_or(no_room)?;
    let mut qmd = QmdV3_0::new();
    for (field, value) in [
        (field::QMD_MAJOR_VERSION, 3),
        (field::QMD_GROUP_ID, 0x3f),
        (field::SM_GLOBAL_CACHING_ENABLE, 1),
        (field::API_VISIBLE_CALL_LIMIT, 1),
        (field::SAMPLER_INDEX, 1),
        (field::INVALIDATE_TEXTURE_HEADER_CACHE, 1),
        (field::INVALIDATE_TEXTURE_SAMPLER_CACHE, 1),
        (field::INVALIDATE_TEXTURE_DATA_CACHE, 1),
        (field::INVALIDATE_SHADER_DATA_CACHE, 1),
        (field::CWD_MEMBAR_TYPE, 1),
        (field::CTA_RASTER_WIDTH, 1),
        (field::CTA_RASTER_HEIGHT, 1),
        (field::CTA_RASTER_DEPTH, 1),
        (field::CTA_THREAD_DIMENSION0, u64::from(THREADS)),
        (field::CTA_THREAD_DIMENSION1, 1),
        (field::CTA_THREAD_DIMENSION2, 1),
        (field::PROGRAM_ADDRESS_LOWER, code & 0xffff_ffff),
        (field::PROGRAM_ADDRESS_UPPER, code >> 32),
        (field::PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED, code >> 8 & 0xffff_ffff),
        (field::PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED, code >> 40),
        (field::PROGRAM_PREFETCH_SIZE, (kernel.code_bytes / 256).min(0x1ff)),
        (field::SASS_VERSION, 0x87),
        (field::REGISTER_COUNT_V, u64::from(kernel.registers)),
        (field::BARRIER_COUNT, u64::from(kernel.barriers)),
        (field::SHADER_LOCAL_MEMORY_HIGH_SIZE, u64::from(LOCAL.stack_reserve)),
        (field::SHARED_MEMORY_SIZE, u64::from(shared)),
        (field::MIN_SM_CONFIG_SHARED_MEM_SIZE, u64::from(config)),
        (field::TARGET_SM_CONFIG_SHARED_MEM_SIZE, u64::from(config)),
        (field::MAX_SM_CONFIG_SHARED_MEM_SIZE, 0x1a),
        (field::CONSTANT_BUFFER_VALID.at(0)?, 1),
        (field::CONSTANT_BUFFER_INVALIDATE.at(0)?, 1),
        (field::CONSTANT_BUFFER_ADDR_LOWER.at(0)?, bank & 0xffff_ffff),
        (field::CONSTANT_BUFFER_ADDR_UPPER.at(0)?, bank >> 32),
        (field::CONSTANT_BUFFER_SIZE_SHIFTED4.at(0)?, u64::from(kernel.constant0_bytes.div_ceil(16))),
    ] {
        qmd.set(field, value)?;
    }
    Ok(qmd)
}

pub(super) fn dispatch(context: &Context) -> Check {
    let rig = Rig::new(context)?;
    let mut channel = rig.compute_channel()?;
    let cubin = fixture()?;
    let kernel = cubin.kernel("square_plus_one")?;
    let seen = rig.gpu.characteristics();

    let image = rig.memory(cubin.image_bytes(), CacheMode::InnerCacheable, "code")?;
    image.buffer.copy_from_slice(0, &cubin.image_at(image.va(0))?)?;
    let record = rig.memory(8192, CacheMode::InnerCacheable, "launch")?;
    let out = rig.memory(4096, CacheMode::InnerCacheable, "out")?;
    let semaphore = rig.memory(4096, CacheMode::InnerCacheable, "semaphore")?;
    let pushbuffer = rig.memory(4096, CacheMode::InnerCacheable, "pushbuffer")?;
    let tpcs = seen.gpc_count() * seen.tpcs_per_gpc();
    let layout = SmLayout { warps_per_sm: seen.raw().sm_arch_warp_count, sm_per_tpc: 2, tpc_count: tpcs };
    let local_size = local_memory_size(LOCAL.stack_reserve, layout)?;
    let local = rig.memory(local_size.area_bytes, CacheMode::InnerCacheable, "local memory")?;

    let qmd = descriptor(kernel, image.va(kernel.code_offset), record.va(BANK0))?;
    record.buffer.copy_from_slice(usize::try_from(BANK0)?, &bank0(kernel, out.va(0)))?;
    record.buffer.copy_from_slice(usize::try_from(QMD)?, qmd.as_words().as_ref())?;
    let words = words(|encoder| {
        encoder.set_object(Subchannel::COMPUTE, seen.compute_class())?;
        encoder.shader_local_memory_window(LOCAL_WINDOW.get())?;
        encoder.shader_shared_memory_window(SHARED_WINDOW.get())?;
        encoder.shader_local_memory(local.va(0))?;
        encoder.shader_local_memory_size(local_size.bytes_per_tpc, 0xff)?;
        encoder.invalidate_shader_caches_no_wfi()?;
        encoder.launch(record.va(QMD), PcasAction::PrefetchSchedule)?;
        encoder.semaphore_release(&SemaphoreRelease {
            va: semaphore.va(0),
            payload: Payload::Bits32(DONE),
            wait_for_idle: true,
            timestamp: false,
        })
    })?;
    submit(&mut channel, &pushbuffer, &words)?;
    await_gpu(context, &channel, Duration::from_secs(5), || {
        semaphore.buffer.load_u32(0, Ordering::Acquire) == DONE
    })?;
    for i in 0..THREADS {
        let value = f32::from_bits(out.buffer.read_u32(i as usize * 4));
        let wanted = (i * i + 1) as f32;
        assert!((value - wanted).abs() <= 0.001, "out[{i}] is {value}, not {wanted}");
    }
    Ok(())
}
