//! Stages of the kernel driver: nodes and characteristics, memory, channels.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use gpu_hal::MemoryUse;
use kernel_door::{DoorFd, OpenFlags};
use nvgpu_channel::{Gpu, MapOptions};
use nvgpu_sys::{Release, ctrl, paths};
use nvmap::CacheMode;
use serde_json::{Map, Value, json};
use tegra_hcq::{Device, DeviceKind};
use zerocopy::IntoBytes;

use super::{Context, micros};
use crate::bring_up::record::Outcome;

/// Bytes of each allocation of stage 2.
const BYTES: u64 = 1 << 20;

/// Stage 1.
pub(super) fn nodes(context: &Context) -> Result<Outcome> {
    if !context.is_nvgpu() {
        return open_any(context);
    }
    let door = context.door();
    let recorder = &context.recorder;
    for path in [paths::NVMAP, paths::HOST1X_FENCE, paths::CTRL] {
        recorder.step(format!("opening {}", path.to_string_lossy()))?;
        let opened = match path == paths::NVMAP {
            true => nvmap::open_node(&door),
            false => DoorFd::open(&door, path, OpenFlags::READ_WRITE | OpenFlags::CLOSE_ON_EXEC),
        };
        // Without fences the CPU cannot sleep on syncpoints, and that is all.
        if path != paths::HOST1X_FENCE {
            opened.with_context(|| format!("opening {}", path.to_string_lossy()))?;
        }
    }
    let fd = DoorFd::open(&door, paths::CTRL, OpenFlags::READ_WRITE | OpenFlags::CLOSE_ON_EXEC)?;
    // The bytes are recorded before they are judged.
    recorder.step("asking for the characteristics")?;
    let start = Instant::now();
    let answer = ctrl::ask_characteristics(&fd).context("NVGPU_GPU_IOCTL_GET_CHARACTERISTICS")?;
    recorder.fact("first_answer_us", micros(start.elapsed()));
    let layout = ctrl::Characteristics::release_of(answer.size);
    recorder.fact("characteristics_bytes", answer.size);
    recorder.fact("characteristics_layout", layout.map(Release::name));
    // The bytes of an unknown layout are read as the newest one.
    let layout = layout.unwrap_or(Release::R39_2);
    // The number of this open, which is no property of the board.
    let raw =
        ctrl::Characteristics { device_instance_id: 0, ..ctrl::Characteristics::read(&answer.bytes, layout) };
    recorder.fact("characteristics", orin_sim::Settings::characteristics_digits(&raw, layout));
    recorder.fact("characteristics_fields", fields(&raw));
    let mut vsms = ctrl::NumVsms::default();
    let answer = ctrl::NUM_VSMS.send(&fd, &mut vsms);
    recorder.fact("num_vsms", answer.map_or_else(|errno| json!(errno.to_string()), |_| json!(vsms.num_vsms)));
    let mut masks = [0_u32; 32];
    let answer = ctrl::get_tpc_masks(&fd, &mut masks);
    let masks = answer.map(|count| json!(&masks[..count.min(32)]));
    recorder.fact("tpc_masks", masks.unwrap_or_else(|errno| json!(errno.to_string())));
    let mut engines = [ctrl::EngineInfoItem::default(); 32];
    let answer = ctrl::get_engine_info(&fd, &mut engines);
    let engines: Result<Value, _> = answer.map(|count| {
        let engine = |item: &ctrl::EngineInfoItem| {
            json!({ "id": item.engine_id, "instance": item.engine_instance, "runlist": item.runlist_id })
        };
        engines[..count.min(32)].iter().map(engine).collect()
    });
    recorder.fact("engines", engines.unwrap_or_else(|errno| json!(errno.to_string())));
    drop(fd);

    recorder.step("checking the characteristics")?;
    let gpu = Gpu::open(&door)?;
    let memory = gpu.nvmap().system_memory()?;
    recorder.fact("memory", json!({ "total_bytes": memory.total_bytes, "free_bytes": memory.free_bytes }));
    recorder.fact("carveouts", gpu.nvmap().carveouts().map_or(json!(null), |heaps| json!(heaps.bits())));
    let chip = gpu.characteristics();
    Ok(Outcome::Passed(format!("{}, {} SMs", chip.chip_name(), chip.sm_count())))
}

/// The fields of the characteristics by the names of the driver's header.
fn fields(raw: &ctrl::Characteristics) -> Value {
    let bytes = raw.as_bytes();
    let fields =
        <ctrl::Characteristics as kernel_door::layout::Uapi>::FIELDS.iter().filter(|field| field.size <= 8);
    let value = |field: &kernel_door::layout::Field| {
        let mut word = [0; 8];
        word[..field.size].copy_from_slice(&bytes[field.offset..field.offset + field.size]);
        (field.name.to_owned(), format!("{:#x}", u64::from_le_bytes(word)).into())
    };
    Value::Object(fields.map(value).collect())
}

/// Opens the GPU of another driver and records its properties.
fn open_any(context: &Context) -> Result<Outcome> {
    context.recorder.step("opening the GPU")?;
    let driver = Device::driver_through(context.door(), context.device)?;
    let seen = driver.properties();
    let numbers: Map<String, Value> =
        seen.driver.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    context.recorder.fact("driver", numbers);
    context.recorder.fact("chip", seen.chip.clone());
    context.recorder.fact("sms", seen.sm_count);
    Ok(Outcome::Passed(format!("{}, {} SMs", seen.chip, seen.sm_count)))
}

/// Stage 2.
pub(super) fn memory(context: &Context) -> Result<Outcome> {
    if !context.is_nvgpu() {
        return memory_of_any(context);
    }
    let gpu = Gpu::open(&context.door())?;
    let space = gpu.address_space()?;
    let (mut seen, mut vas) = (Map::new(), Vec::new());
    let modes =
        [CacheMode::WriteCombined, CacheMode::InnerCacheable, CacheMode::Cacheable, CacheMode::Uncached];
    for mode in modes {
        context.recorder.step(format!("allocating {mode:?} memory"))?;
        let start = Instant::now();
        let buffer = Arc::new(gpu.nvmap().buffer(BYTES).cache(mode).label("bring-up").allocate()?);
        let allocated = start.elapsed();
        context.recorder.step(format!("mapping {mode:?} memory"))?;
        let start = Instant::now();
        let mapping = space.map(&buffer, MapOptions::default())?;
        let mapped = start.elapsed();
        for at in [0, 4, 4096, buffer.size() - 4] {
            let value = 0x5a5a_0000 ^ u32::try_from(at)?;
            buffer.write_u32(at, value);
            ensure!(
                buffer.read_u32(at) == value,
                "{mode:?} memory: the word at {at} does not keep its value"
            );
        }
        let va = mapping.va().get();
        let start = Instant::now();
        mapping.unmap()?;
        vas.push(va);
        let times = json!({
            "va": format!("{va:#x}"),
            "allocate_us": micros(allocated),
            "map_us": micros(mapped),
            "unmap_us": micros(start.elapsed()),
        });
        seen.insert(format!("{mode:?}"), times);
        context.recorder.fact("modes", seen.clone());
    }
    context.recorder.fact("alloc_code", gpu.nvmap().alloc_code().map(|code| format!("{code:#010x}")));
    Ok(Outcome::Passed(format!("{} cache modes; first address {:#x}", modes.len(), vas[0])))
}

fn memory_of_any(context: &Context) -> Result<Outcome> {
    let driver = Device::driver_through(context.door(), context.device)?;
    let mut seen = Map::new();
    for purpose in MemoryUse::ALL {
        context.recorder.step(format!("allocating memory for {purpose:?}"))?;
        let start = Instant::now();
        let memory = driver.allocate(BYTES, purpose, "bring-up")?;
        let took = micros(start.elapsed());
        let word = memory.cpu()?.cast::<u32>();
        // SAFETY: the memory is mapped while `memory` lives, and aligned to a page.
        let kept = unsafe {
            word.write_volatile(0x5a5a_a5a5);
            word.read_volatile()
        };
        ensure!(kept == 0x5a5a_a5a5, "memory for {purpose:?} does not keep its value");
        let value = json!({ "va": format!("{:#x}", memory.gpu_va()), "allocate_us": took });
        seen.insert(format!("{purpose:?}"), value);
    }
    context.recorder.fact("purposes", seen);
    Ok(Outcome::Passed("memory for CPU and GPU".to_owned()))
}

/// Stage 3.
pub(super) fn channel(context: &Context) -> Result<Outcome> {
    let recorder = &context.recorder;
    if !context.is_nvgpu() {
        recorder.step("opening channels")?;
        let driver = Device::driver_through(context.door(), context.device)?;
        let start = Instant::now();
        let channels = driver.open_channels()?;
        recorder.fact("open_us", micros(start.elapsed()));
        let ids = channels.group.channel_ids();
        ensure!(channels.group.error().is_none(), "an error is recorded for new channels");
        return Ok(Outcome::Passed(format!("channels {ids:?} open")));
    }
    let mut times = Map::new();
    let mut timed = |name: &str, start: Instant| {
        times.insert(format!("{name}_us"), micros(start.elapsed()).into());
        recorder.fact("times", times.clone());
    };
    let gpu = Gpu::open(&context.door())?;
    recorder.step("creating the address space")?;
    let start = Instant::now();
    let space = gpu.address_space()?;
    timed("address_space", start);
    let (first, bytes) = space.user_range()?;
    recorder.fact("user_range", json!([first.to_string(), bytes]));
    recorder.step("creating TSG and subcontext")?;
    let start = Instant::now();
    let subcontext = gpu.tsg()?.subcontext(&space)?;
    timed("tsg_and_subcontext", start);
    recorder.fact("veid", subcontext.veid());
    let mut channels = Vec::new();
    for (name, class) in
        [("compute", gpu.characteristics().compute_class()), ("copy", gpu.characteristics().copy_class())]
    {
        recorder.step(format!("opening the {name} channel"))?;
        let start = Instant::now();
        let channel = subcontext.channel(class).label(name).open()?;
        timed(name, start);
        ensure!(channel.error_notifier().is_none(), "the {name} channel begins with an error");
        ensure!(channel.in_service()?, "the {name} channel is out of service");
        channels.push(channel);
    }
    let tokens: Vec<_> = channels.iter().map(|channel| format!("{:#x}", channel.token())).collect();
    recorder.fact("tokens", tokens.clone());
    recorder.step("closing the channels")?;
    let start = Instant::now();
    drop(channels);
    timed("close", start);
    Ok(Outcome::Passed(format!("VEID {}, tokens {}", subcontext.veid(), tokens.join(" and "))))
}

/// Whether the driver of a kind exists on this machine.
pub(in crate::bring_up) fn is_present(kind: DeviceKind) -> bool {
    let path = match kind {
        DeviceKind::Nvgpu => paths::CTRL,
        DeviceKind::Nvrm => nvrm::CONTROL_NODE,
        _ => return true,
    };
    rustix::fs::stat(path).is_ok()
}
