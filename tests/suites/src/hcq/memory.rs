//! The GPU sees what the CPU writes.

use std::time::Instant;

use tegra_hcq::{HostMemory, QueueOptions, args};

use crate::fixtures::{equal, kernel, patience};
use test_harness::{Check, Context};

pub(super) fn barrier(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let increment = kernel!(device, "basics", "increment")?;
    let mut data = device.alloc_zeroed::<u32>(8)?;
    for value in 0..255 {
        data.view()?.fill(value);
        queue.memory_barrier()?;
        unsafe { queue.launch(&increment, 1, 8, &args![&data, 8_u32]) }?;
        queue.wait(patience(context))?;
        equal("data", &data.to_vec()?, &[value + 1; 8])?;
    }
    Ok(())
}

pub(super) fn barrier_before_copy(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let mut source = device.alloc_zeroed::<u8>(1)?;
    let mut middle = device.alloc_zeroed::<u8>(1)?;
    let mut target = device.alloc_zeroed::<u8>(1)?;
    for value in 0..=255 {
        source.view()?[0] = value;
        queue.memory_barrier()?;
        queue.copy(&source, &mut middle)?;
        queue.copy(&middle, &mut target)?;
        queue.wait(patience(context))?;
        equal("byte", &target.to_vec()?, &[value])?;
    }
    Ok(())
}

pub(super) fn host_buffer(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let bytes: Vec<u8> = (0..8192_u32).map(|i| ((i * 7) >> 3) as u8).collect();
    let host = device.import(HostMemory::from_slice(&bytes)?)?;
    let mut target = device.alloc_zeroed::<u8>(bytes.len())?;
    queue.copy(&host, &mut target)?;
    queue.wait(patience(context))?;
    equal("the copy", &target.to_vec()?, &bytes)
}

/// Blocks of several sizes: pointers of the CPU are those of the GPU, and each side sees what the other wrote.
pub(super) fn unified(context: &Context) -> Check {
    let device = context.device()?;
    let increment = kernel!(device, "basics", "increment")?;
    let mut queue = device.queue_with(&QueueOptions::default().any_memory(true))?;
    let mut kept = Vec::new();
    for len in [64, 30_000, 1 << 20, 3 << 20] {
        let buffer = device.alloc_unified::<u32>(len)?.named("unified");
        let address = buffer.cpu_address()?.expect("unified memory is visible").as_ptr();
        equal("the address", &[address as u64], &[buffer.gpu_va()])?;
        for round in 0..3_u32 {
            let last = len - 64;
            // SAFETY: inside the buffer, which no work uses.
            (last..len).for_each(|at| unsafe { address.add(at).write_volatile(round) });
            let block =
                [&(address as u64 + 4 * last as u64).to_le_bytes()[..], &64_u32.to_le_bytes()].concat();
            unsafe { queue.launch_raw(&increment, 1, 64, 0, &block) }?;
            queue.wait(patience(context))?;
            // SAFETY: as above.
            let seen: Vec<u32> = (last..len).map(|at| unsafe { address.add(at).read_volatile() }).collect();
            equal("what the kernel wrote", &seen, &[round + 1; 64])?;
        }
        kept.push(buffer);
    }
    // A copy from there and a fill of it, while the CPU waits for the last word.
    let source = &kept[2];
    let mut target = device.alloc::<u32>(source.len())?;
    let word = source.cpu_address()?.expect("unified memory is visible").as_ptr();
    let last = source.gpu_va() + 4 * (source.len() as u64 - 1);
    unsafe { queue.fill_raw(source.gpu_va(), 0xcafe_u32, source.len())? };
    unsafe { queue.fill_raw(last, 0xbabe_u32, 1)? };
    queue.submit()?;
    let start = Instant::now();
    // SAFETY: inside the buffer; the GPU writes the word once.
    while unsafe { word.add(source.len() - 1).read_volatile() } != 0xbabe
        && start.elapsed() < patience(context)
    {
        std::hint::spin_loop();
    }
    queue.copy(source, &mut target)?;
    queue.wait(patience(context))?;
    let copied = target.to_vec()?;
    equal("both ends of the copy", &[copied[0], copied[copied.len() - 1]], &[0xcafe, 0xbabe])
}

/// Each function multiplies what the launch before it has written, before the next launch adds to it.
pub(super) fn host_function(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let increment = kernel!(device, "basics", "increment")?;
    let mut data = device.alloc_unified::<u32>(64)?;
    data.copy_from_slice(&[0; 64])?;
    let address = data.gpu_va() as usize;
    for _ in 0..12 {
        unsafe { queue.launch(&increment, 1, 64, &args![&data, 64_u32]) }?;
        queue.host_function(move || {
            let words = address as *mut u32;
            // SAFETY: inside the buffer, which lives until the queue's work has ended, and no work uses it now.
            (0..64).for_each(|at| unsafe { words.add(at).write_volatile(3 * words.add(at).read_volatile()) });
        })?;
    }
    queue.wait(patience(context))?;
    let wanted = (0..12).fold(0_u32, |value, _| 3 * (value + 1));
    equal("data", &data.to_vec()?, &[wanted; 64])
}
