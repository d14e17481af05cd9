//! Copies.

use tegra_hcq::{Device, Error, MemoryUse, QueueOptions, RawPlane};

use crate::fixtures::{ensure, equal, kernel, patience};
use test_harness::{Check, Context, Skip};
use test_support::{Numbers, block_linear_offset};

/// Size of the "long" copies, in bytes.
const LONG: usize = 64 << 20;

pub(super) fn small(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let a = device.alloc_from(&[0.0_f32, 1.0])?;
    let mut b = device.alloc_zeroed::<f32>(2)?;
    queue.copy(&a, &mut b)?;
    queue.wait(patience(context))?;
    equal("b", &b.to_vec()?, &[0.0, 1.0])
}

/// Bytes that differ from page to page.
fn pattern(len: usize, seed: u64) -> Vec<u32> {
    Numbers::new(seed).vec_u32(len / 4)
}

pub(super) fn long(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let data = pattern(LONG, 1);
    let mut upload = device.alloc_for::<u32>(data.len(), MemoryUse::Upload)?;
    upload.copy_from_slice(&data)?;
    let mut on_device = device.alloc::<u32>(data.len())?;
    let mut back = device.alloc_for::<u32>(data.len(), MemoryUse::ReadBack)?;
    queue.copy(&upload, &mut on_device)?;
    queue.copy(&on_device, &mut back)?;
    queue.wait(patience(context))?;
    equal("round trip", &back.to_vec()?, &data)
}

pub(super) fn beyond_32_bits(context: &Context) -> Check {
    let device = context.device()?;
    let largest = 6_u64 << 30;
    let free = device.memory().map_or(0, |memory| memory.available);
    if context.is_model() || free < 2 * largest + (2 << 30) {
        let reason = format!(
            "needs 14 GiB of memory that a copy engine fills in seconds; {}",
            if context.is_model() { "the model allocates its pages from the host" } else { "less is free" }
        );
        return Err(Skip(reason).into());
    }
    for bytes in [(1_u64 << 32) - 8, 1 << 32, (1 << 32) + 8, 5 << 30, largest - 24] {
        copy_and_sample(context, device, bytes as usize)?;
    }
    Ok(())
}

/// Copies `bytes` bytes and compares words at both ends and around each multiple of 2^32 and 2^31.
fn copy_and_sample(context: &Context, device: &Device, bytes: usize) -> Check {
    let mut queue = device.queue()?;
    let words = bytes / 4;
    let mut source = device.alloc::<u32>(words)?;
    let mut target = device.alloc::<u32>(words)?;
    let places: Vec<usize> = (0..=bytes >> 31)
        .flat_map(|multiple| {
            let at = (multiple << 31) / 4;
            [at.saturating_sub(1), at, at + 1]
        })
        .chain([words - 2, words - 1])
        .filter(|place| *place < words)
        .collect();
    for (value, &place) in (1_u32..).zip(&places) {
        source.slice_mut(place..=place)?.copy_from_slice(&[value])?;
        target.slice_mut(place..=place)?.copy_from_slice(&[0])?;
    }
    queue.copy(&source, &mut target)?;
    queue.wait(patience(context))?;
    for &place in &places {
        let (got, wanted) = (target.slice(place..=place)?.to_vec()?, source.slice(place..=place)?.to_vec()?);
        equal(&format!("word {place} of {words}"), &got, &wanted)?;
    }
    Ok(())
}

/// Rectangles with one or many rows, at odd places of planes with different pitches.
pub(super) fn rectangles(context: &Context) -> Check {
    const PITCHES: [usize; 2] = [1021, 257];
    let (device, mut queue) = context.device_and_queue()?;
    let image: Vec<u8> = pattern(PITCHES[0] * 260 * 4, 3).into_iter().map(|word| word as u8 | 1).collect();
    let source = device.alloc_from(&image)?;
    let mut target = device.alloc::<u8>(PITCHES[1] * 300)?;
    for (columns, rows, x, y) in [(257, 200, 5, 7), (1, 256, 1020, 0), (255, 1, 766, 255), (33, 100, 1, 3)] {
        queue.fill(&mut target, 0)?;
        let part = source.plane(PITCHES[0])?.part(x..x + columns, y..y + rows)?;
        queue.copy_2d(part, target.plane_mut(PITCHES[1])?.part(..columns, 44..44 + rows)?)?;
        queue.wait(patience(context))?;
        let mut wanted = vec![0; target.len()];
        for row in 0..rows {
            let (from, to) = ((y + row) * PITCHES[0] + x, (44 + row) * PITCHES[1]);
            wanted[to..to + columns].copy_from_slice(&image[from..from + columns]);
        }
        equal(&format!("{columns} x {rows} from ({x}, {y})"), &target.to_vec()?, &wanted)?;
    }
    Ok(())
}

/// Rectangles to block-linear surfaces and back; the memory of the surface is compared with the layout.
pub(super) fn block_linear(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    for (width, rows, log2, (x, y), (wide, high)) in [
        (64, 8, 0, (0, 0), (64, 8)),
        (257, 100, 1, (0, 0), (257, 100)),
        (1920, 135, 4, (33, 7), (1001, 121)),
        (131, 300, 5, (130, 299), (1, 1)),
    ] {
        let blocks = usize::div_ceil(width, 64) * usize::div_ceil(rows, 8 << log2);
        let mut memory = device.alloc_zeroed::<u8>(blocks * (512 << log2))?;
        let image: Vec<u8> = pattern(wide * high * 4, 5).into_iter().map(|word| word as u8 | 1).collect();
        let surface = memory.slice_mut(..)?.blocks(width, rows, log2)?;
        queue.upload_2d(&image, wide, surface.part(x..x + wide, y..y + high)?)?;
        let surface = memory.slice(..)?.blocks(width, rows, log2)?;
        let back = queue.download_2d(surface.part(x..x + wide, y..y + high)?)?;
        let mut wanted = vec![0; memory.len()];
        for (index, byte) in image.iter().enumerate() {
            let (x, y) = (x + index % wide, y + index / wide);
            wanted[block_linear_offset(width, log2, x, y)] = *byte;
        }
        let name = format!("{wide} x {high} at ({x}, {y}) of {width} x {rows} in blocks of 2^{log2} GOBs");
        equal(&format!("{name}, back"), &back.wait(patience(context))?, &image)?;
        equal(&name, &memory.to_vec()?, &wanted)?;
    }
    Ok(())
}

/// Uploads and downloads one after another, which the queue orders.
pub(super) fn staged(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let mut data = device.alloc::<u32>(LONG / 64)?;
    let values: Vec<Vec<u32>> = (0..4).map(|seed| pattern(LONG / 16, seed)).collect();
    let mut downloads = Vec::new();
    for source in &values {
        queue.upload(source, &mut data)?;
        downloads.push(queue.download(&data)?);
    }
    for (round, (download, source)) in downloads.into_iter().zip(&values).enumerate() {
        equal(&format!("round {round}"), &download.wait(patience(context))?, source)?;
    }
    Ok(())
}

fn redirect(context: &Context, len: usize) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let sources = [device.alloc_from(&pattern(len, 1))?, device.alloc_from(&pattern(len, 2))?];
    let mut targets = [device.alloc_zeroed::<u32>(len / 4)?, device.alloc_zeroed::<u32>(len / 4)?];
    let mut builder = device.graph();
    let node = builder.copy(&sources[0], &mut targets[0])?;
    let mut graph = builder.build()?;
    graph.set_copy(node, &sources[1], &mut targets[1])?;
    queue.replay(&mut graph)?.wait(patience(context))?;
    equal("the new target", &targets[1].to_vec()?, &sources[1].to_vec()?)?;
    ensure(targets[0].to_vec()?.iter().all(|word| *word == 0), || "the old target was written".to_owned())
}

pub(super) fn update(context: &Context) -> Check {
    redirect(context, 8)
}

pub(super) fn update_long(context: &Context) -> Check {
    // The interpreter copies a few hundred megabytes per second.
    redirect(context, if context.is_model() { LONG / 16 } else { LONG })
}

pub(super) fn bandwidth(context: &Context) -> Check {
    const BYTES: usize = 200_000_000;
    let (device, mut queue) = context.device_and_queue()?;
    let source = device.alloc_zeroed::<u8>(BYTES)?;
    let mut target = device.alloc::<u8>(BYTES)?;
    let (start, end) = (device.signal(0)?, device.signal(0)?);
    let mut best = 0.0_f64;
    for round in 1..=4 {
        queue.timestamp(&start, round)?;
        queue.copy(&source, &mut target)?;
        queue.timestamp(&end, round)?;
        queue.wait(patience(context))?;
        let nanoseconds = end.gpu_time_ns().saturating_sub(start.gpu_time_ns()).max(1);
        best = best.max(BYTES as f64 / nanoseconds as f64);
    }
    context.note(format!("copy engine: {best:.1} GB/s"));
    ensure(context.is_model() || (10.0..10_000.0).contains(&best), || {
        format!("{best:.1} GB/s; expected at least 10")
    })
}

pub(super) fn bytes_from_host(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let mut host = device.alloc_for::<u8>(1, MemoryUse::Upload)?;
    let mut target = device.alloc_zeroed::<u8>(1)?;
    for value in 0..=255 {
        host.copy_from_slice(&[value])?;
        queue.copy(&host, &mut target)?;
        queue.wait(patience(context))?;
        equal("byte", &target.to_vec()?, &[value])?;
    }
    Ok(())
}

pub(super) fn bytes_through_another(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let mut host = device.alloc_for::<u8>(1, MemoryUse::Upload)?;
    let mut middle = device.alloc_zeroed::<u8>(1)?;
    let mut target = device.alloc_zeroed::<u8>(1)?;
    for value in 0..=255 {
        host.copy_from_slice(&[value])?;
        queue.copy(&host, &mut middle)?;
        queue.copy(&middle, &mut target)?;
        queue.wait(patience(context))?;
        equal("byte", &target.to_vec()?, &[value])?;
    }
    // A destination that does not fit is refused; the queue stays usable.
    let mut two = device.alloc::<u8>(2)?;
    match queue.copy(&host, &mut two) {
        Err(Error::Range(_)) => Ok(()),
        other => Err(format!("a copy of 1 byte to 2 was not refused: {other:?}").into()),
    }
}

/// Work by address: each call once, also on odd addresses and with gaps between lines.
pub(super) fn by_address(context: &Context) -> Check {
    let device = context.device()?;
    let increment = kernel!(device, "basics", "increment")?;
    let mut queue = device.queue_with(&QueueOptions::default().any_memory(true))?;
    let data: Vec<u8> = pattern(4096, 4).into_iter().flat_map(u32::to_le_bytes).collect();
    let (source, target) = (device.alloc_from(&data)?, device.alloc::<u8>(16384)?);
    let (from, to) = (source.gpu_va(), target.gpu_va());
    let plane = |gpu_va, pitch| RawPlane { gpu_va, pitch };
    let mut wanted = vec![0_u8; 16384];
    unsafe {
        queue.fill_raw(to, 0_u8, 16384)?;
        queue.copy_raw(from + 1, to + 3, 1021)?;
        queue.copy_raw_2d(plane(from + 5, 99), plane(to + 1100, 61), 60, 20)?;
        queue.fill_raw(to + 4001, 0xa5_u8, 77)?;
        queue.fill_raw(to + 4102, 0xbeef_u16, 33)?;
        queue.fill_raw(to + 4204, -1.5_f32, 33)?;
        queue.fill_raw_2d(plane(to + 5001, 101), 0x5a_u8, 55, 9)?;
        queue.fill_raw_2d(plane(to + 6002, 302), 0x1234_u16, 121, 7)?;
        queue.fill_raw_2d(plane(to + 8196, 404), 0xdead_beef_u32, 55, 9)?;
        queue.upload_raw_2d(&data, 128, plane(to + 12290, 130), 127, 8)?;
        queue.fill_raw(to + 14336, 7_u32, 256)?;
        let block = [&(to + 14336).to_le_bytes()[..], &256_u32.to_le_bytes()].concat();
        queue.launch_raw(&increment, 1, 256, 0, &block)?;
    }
    wanted[3..1024].copy_from_slice(&data[1..1022]);
    for line in 0..20 {
        wanted[1100 + line * 61..][..60].copy_from_slice(&data[5 + line * 99..][..60]);
    }
    let mut put = |start: usize, bytes: &[u8], count: usize| {
        wanted[start..start + bytes.len() * count].copy_from_slice(&bytes.repeat(count));
    };
    put(4001, &[0xa5], 77);
    put(4102, &0xbeef_u16.to_le_bytes(), 33);
    put(4204, &(-1.5_f32).to_le_bytes(), 33);
    (0..9).for_each(|line| put(5001 + line * 101, &[0x5a], 55));
    (0..7).for_each(|line| put(6002 + line * 302, &0x1234_u16.to_le_bytes(), 121));
    (0..9).for_each(|line| put(8196 + line * 404, &0xdead_beef_u32.to_le_bytes(), 55));
    (0..8).for_each(|line| put(12290 + line * 130, &data[line * 128..][..127], 1));
    put(14336, &8_u32.to_le_bytes(), 256);
    let back = unsafe { queue.download_raw(to, 16384)? };
    equal("the target", &back.wait(patience(context))?, &wanted)
}
