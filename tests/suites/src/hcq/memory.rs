//! The GPU sees what the CPU writes.

use tegra_hcq::{HostMemory, args};

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
