//! Channels: bring-up, rings, doorbell, semaphores.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ampere_cmd::command::{Payload, SemaphoreRelease};
use ampere_cmd::pushbuffer::Subchannel;
use nvgpu_channel::{Channel, ErrorCode};
use nvmap::CacheMode;

use super::support::{Rig, await_gpu, submit as send, words};
use test_harness::{Check, Context};

pub(super) fn full_setup(context: &Context) -> Check {
    let rig = Rig::new(context)?;
    let channel = rig.compute_channel()?;
    context.note(format!("token {:#x}, VEID {}", channel.token(), channel.subcontext().veid()));
    assert!(channel.in_service()?, "the channel is out of service");
    assert_eq!((channel.entries(), channel.error_notifier()), (1024, None));
    // Bits 11:0 hold the channel id, bits 22:16 the runlist id; the GPU's first runlist is 0.
    assert_eq!(channel.token() >> 12, 0, "token {:#x}", channel.token());
    Ok(())
}

/// Whether all entries of an unwritten ring are 0.
fn is_blank(channel: &Channel) -> bool {
    (0..channel.entries() as usize).all(|slot| {
        // SAFETY: the ring has `entries` slots, which the channel keeps mapped; volatile, because the GPU may
        // also read them.
        unsafe { channel.ring_pointer().add(slot).read_volatile() == 0 }
    })
}

/// GP_GET, GP_PUT, ring and doorbell of a fresh channel.
fn check_fresh(channel: &Channel) {
    assert_eq!((channel.gp_get(), channel.gp_put()), (0, 0), "GP_GET and GP_PUT of {}", channel.label());
    assert!(is_blank(channel), "the ring of {} is not empty", channel.label());
    let register = channel.doorbell().register().addr().get();
    assert_eq!(register % 4096, 0x90, "the doorbell register is at {register:#x}");
}

pub(super) fn mapped_ring(context: &Context) -> Check {
    let rig = Rig::new(context)?;
    check_fresh(&rig.compute_channel()?);
    Ok(())
}

pub(super) fn semaphore_release(context: &Context) -> Check {
    let rig = Rig::new(context)?;
    let mut channel = rig.compute_channel()?;
    let semaphore = rig.memory(4096, CacheMode::WriteCombined, "semaphore")?;
    let pushbuffer = rig.memory(4096, CacheMode::WriteCombined, "pushbuffer")?;
    let class = rig.gpu.characteristics().compute_class();
    let words = words(|encoder| {
        encoder.set_object(Subchannel::COMPUTE, class)?;
        encoder.semaphore_release(&SemaphoreRelease {
            va: semaphore.va(0),
            payload: Payload::Bits32(0x42),
            wait_for_idle: true,
            timestamp: false,
        })?;
        encoder.non_stall_interrupt()
    })?;
    send(&mut channel, &pushbuffer, &words)?;
    await_gpu(context, &channel, Duration::from_secs(2), || {
        semaphore.buffer.load_u32(0, Ordering::Acquire) == 0x42
    })?;
    await_gpu(context, &channel, Duration::from_secs(2), || channel.gp_get() == 1)
}

pub(super) fn two(context: &Context) -> Check {
    let rig = Rig::new(context)?;
    let classes = rig.gpu.characteristics();
    for entries in [64, 1024, 4096] {
        let subcontext = rig.gpu.tsg()?.subcontext(&rig.space)?;
        let compute = subcontext.channel(classes.compute_class()).entries(entries).label("compute").open()?;
        let copy = subcontext.channel(classes.copy_class()).entries(entries).label("copy").open()?;
        assert_ne!(compute.token(), copy.token(), "each channel has its own token");
        context.note(format!("{entries} entries: tokens {} and {}", compute.token(), copy.token()));
        for channel in [&compute, &copy] {
            check_fresh(channel);
            assert!(channel.in_service()?, "{} is out of service", channel.label());
        }
    }
    Ok(())
}

pub(super) fn submit(context: &Context) -> Check {
    const PAYLOAD: u64 = 0xde_adbe_ef42;
    let rig = Rig::new(context)?;
    let mut channel = rig.compute_channel()?;
    let semaphore = rig.memory(4096, CacheMode::WriteCombined, "semaphore")?;
    let pushbuffer = rig.memory(4096, CacheMode::WriteCombined, "pushbuffer")?;
    let before = rig.gpu.time_ns()?;
    let words = words(|encoder| {
        encoder.semaphore_release(&SemaphoreRelease {
            va: semaphore.va(0),
            payload: Payload::Bits64(PAYLOAD),
            wait_for_idle: true,
            timestamp: true,
        })
    })?;
    assert_eq!(words.len(), 6);
    send(&mut channel, &pushbuffer, &words)?;
    await_gpu(context, &channel, Duration::from_secs(5), || {
        semaphore.buffer.load_u64(0, Ordering::Acquire) == PAYLOAD
    })?;
    let (time, after) = (semaphore.buffer.read_u64(8), rig.gpu.time_ns()?);
    context.note(format!("GPU time {time} ns, {} ns after the previous query", time.saturating_sub(before)));
    assert!((before..=after).contains(&time), "time {time} is not between {before} and {after}");
    Ok(())
}

pub(super) fn release_to_nowhere(context: &Context) -> Check {
    let rig = Rig::new(context)?;
    let mut channel = rig.compute_channel()?;
    let pushbuffer = rig.memory(4096, CacheMode::WriteCombined, "pushbuffer")?;
    let release = SemaphoreRelease {
        va: 0x12_3456_7000,
        payload: Payload::Bits64(1),
        wait_for_idle: false,
        timestamp: false,
    };
    let words = words(|encoder| encoder.semaphore_release(&release))?;
    send(&mut channel, &pushbuffer, &words)?;
    let notifier = channel.notifier().clone();
    let ended = await_gpu(context, &channel, Duration::from_secs(5), || notifier.fault().is_some());
    let fault = notifier.fault().ok_or_else(|| format!("no error notifier: {ended:?}"))?;
    assert_eq!(fault.code, ErrorCode::MmuFault);
    assert!(!channel.in_service()?, "the channel is still in service");
    // Address space and memory remain usable for the next channel.
    drop(channel);
    let mut channel = rig.compute_channel()?;
    let good = rig.memory(4096, CacheMode::WriteCombined, "semaphore")?;
    let release = SemaphoreRelease { va: good.va(0), ..release };
    send(&mut channel, &pushbuffer, &self::words(|encoder| encoder.semaphore_release(&release))?)?;
    await_gpu(context, &channel, Duration::from_secs(2), || good.buffer.load_u64(0, Ordering::Acquire) == 1)
}
