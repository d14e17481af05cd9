//! Signals, waits and the timeline.

use std::sync::Arc;
use std::time::Duration;

use tegra_hcq::{Device, Error, QueueOptions, args};

use crate::fixtures::{ensure, equal, kernel, patience};
use test_harness::{Check, Context};

pub(super) fn signal(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let signal = device.signal(0)?;
    // The compute engine runs the first batch, the copy engine the second.
    for value in [1, u64::from(u32::MAX) + 2] {
        queue.signal(&signal, value)?;
        queue.submit()?;
        signal.wait(value, patience(context))?;
        ensure(signal.value() == value, || format!("the signal is {}, not {value}", signal.value()))?;
        ensure(signal.gpu_time_ns() > 0, || "the signal has no timestamp".to_owned())?;
        let (source, mut target) = (device.alloc_from(&[1_u32])?, device.alloc_zeroed::<u32>(1)?);
        queue.copy(&source, &mut target)?;
    }
    queue.wait(patience(context))?;
    Ok(())
}

pub(super) fn signal_update(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let store = kernel!(device, "basics", "fill_u32")?;
    let words = device.alloc_zeroed::<u32>(16)?;
    let mut builder = device.graph();
    let node = unsafe { builder.launch(&store, 1, 1, &args![&words, 0_u32, 1_u32]) }?;
    let mut graph = builder.build()?;
    for value in 1..16_u32 {
        unsafe { graph.set_argument(node, 0, words.slice(value as usize..)?) }?;
        unsafe { graph.set_argument(node, 1, value) }?;
        queue.replay(&mut graph)?.wait(patience(context))?;
    }
    equal("words", &words.to_vec()?, &(0..16).collect::<Vec<u32>>())
}

pub(super) fn wait(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let signal = device.signal(1)?;
    queue.wait_signal(&signal, 1)?;
    queue.wait(patience(context))?;
    Ok(())
}

pub(super) fn wait_late_set(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let signal = device.signal(0)?;
    queue.wait_signal(&signal, 1)?;
    let fence = queue.submit()?;
    match fence.wait(Duration::from_millis(500)) {
        Err(Error::Timeout { .. }) => {}
        other => return Err(format!("expected a time-out, got {other:?}").into()),
    }
    signal.set(1);
    fence.wait(patience(context))?;
    Ok(())
}

pub(super) fn wait_update(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    for value in [1, 0x30, 1 << 40] {
        let signal = device.signal(value - 1)?;
        queue.wait_signal(&signal, value)?;
        let fence = queue.submit()?;
        ensure(!fence.is_done(), || format!("the queue did not wait for {value:#x}"))?;
        signal.set(value);
        fence.wait(patience(context))?;
    }
    Ok(())
}

pub(super) fn rollover(context: &Context) -> Check {
    let device = context.device()?;
    let mut queue = device.queue_with(&QueueOptions::default().first_value((1 << 32) - 20))?;
    let increment = kernel!(device, "basics", "increment")?;
    let data = device.alloc_zeroed::<u32>(32)?;
    for round in 1..=40 {
        unsafe { queue.launch(&increment, 1, 32, &args![&data, 32_u32]) }?;
        queue.wait(patience(context))?;
        equal("data", &data.to_vec()?, &[round; 32])?;
    }
    Ok(())
}

pub(super) fn hang(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let endless = kernel!(device, "faults", "fault_endless")?;
    let increment = kernel!(device, "basics", "increment")?;
    let (stop, out) = (device.alloc_zeroed::<u32>(1)?, device.alloc_zeroed::<u32>(1)?);
    unsafe { queue.launch(&endless, 1, 1, &args![&stop, &out]) }?;
    let fence = queue.submit()?;
    let error = fence.wait(Duration::from_millis(300)).err();
    let Some(error @ Error::Timeout { .. }) = error else {
        return Err(format!("expected a time-out, got {error:?}").into());
    };
    ensure(error.to_string().contains("fault_endless"), || format!("the cause is missing: {error}"))?;
    let recovery = device.recover()?;
    ensure(recovery.hanging == 1, || format!("{recovery:?}"))?;
    ensure(matches!(fence.wait(patience(context)), Err(Error::Fault(_))), || {
        "the fence of stopped work reports no error".to_owned()
    })?;
    let data = device.alloc_zeroed::<u32>(32)?;
    unsafe { queue.launch(&increment, 1, 32, &args![&data, 32_u32]) }?;
    queue.wait(patience(context))?;
    equal("data after recovery", &data.to_vec()?, &[1; 32])
}

pub(super) fn channel_ids(context: &Context) -> Check {
    let driver = Device::driver_through(Arc::clone(context.door()), context.name())?;
    let (one, other) = (driver.open_channels()?, driver.open_channels()?);
    let [one, other] = [one, other].map(|channels| channels.group.channel_ids());
    let are_apart = one.iter().all(|id| !other.contains(id)) && !one.is_empty() && !other.is_empty();
    ensure(are_apart, || format!("the channels are {one:?} and {other:?}"))
}
