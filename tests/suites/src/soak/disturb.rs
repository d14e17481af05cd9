//! Disturbances that only a model can inject: failing requests, lost doorbells, stalled engines.
//!
//! Each runs while no other thread starts an operation, so that it affects only the intended one; operations
//! in flight continue.

use std::time::{Duration, Instant};

use kernel_door::Errno;
use nvgpu_sys::{address_space, channel, ctrl, nvmap, tsg};
use orin_sim::{Call, Failure, SoftwareOrin};
use tegra_hcq::{Error, FaultKind, Fence, args};

use super::faults::go_on;
use super::worker::Worker;
use crate::fixtures::{ensure, equal, place, reported};
use test_harness::Check;

/// A disturbance and its name.
pub(super) type Kind = (&'static str, fn(&mut Worker<'_>, &SoftwareOrin, &'static str) -> Check);

/// All disturbances.
pub(super) const KINDS: [Kind; 7] = [
    ("request of memory fails", memory_fails),
    ("request of a queue fails", queue_fails),
    ("lost doorbell", lost_doorbell),
    ("stalled engines", stalled_engines),
    ("silent fault", silent_fault),
    ("allocation limit", allocation_limit),
    ("slow power-up", slow_power_up),
];

/// Time-out of a wait that is meant to expire.
const SHORT: Duration = Duration::from_millis(30);
/// Bytes of a buffer too large for recycled memory.
const LARGE: usize = 3 << 20;
/// Errno of an injected failure: neither retryable nor a lack of memory.
const ERRNOS: [Errno; 4] = [Errno::IO, Errno::INVAL, Errno::NODEV, Errno::PERM];

/// The errno that the driver gave.
fn errno(error: &Error) -> Option<Errno> {
    match error {
        Error::Driver(error) => {
            let of_channels = error.driver_error::<nvgpu_channel::Error>().and_then(|error| error.errno());
            of_channels.or_else(|| error.driver_error::<::nvmap::Error>()?.errno())
        }
        Error::OutOfMemory { source, .. } => errno(source),
        _ => None,
    }
}

/// Makes the next `call` fail, records it in the ledger, and returns the injected errno.
fn plan(w: &mut Worker<'_>, orin: &SoftwareOrin, name: &'static str, call: Call) -> Errno {
    let wanted = ERRNOS[w.below(4) as usize];
    w.soak.ledger.inject(w.number, name, &format!("{call:x?} returns {wanted}"));
    orin.fail(Failure { call, nth: 1, errno: wanted });
    wanted
}

/// Fails unless `result` is the injected failure.
fn failed<T>(result: Result<T, Error>, wanted: Errno) -> Check {
    match result {
        Err(error) if errno(&error) == Some(wanted) => Ok(()),
        Err(error) => Err(format!("expected {wanted}: {error}").into()),
        Ok(_) => Err(format!("expected {wanted}, but nothing failed").into()),
    }
}

fn memory_fails(w: &mut Worker<'_>, orin: &SoftwareOrin, name: &'static str) -> Check {
    let calls = [
        Call::Ioctl(nvmap::code::CREATE),
        Call::Ioctl(nvmap::alloc_code(test_support::config().release)),
        Call::Ioctl(nvmap::code::GET_FD),
        Call::Ioctl(address_space::code::MAP_BUFFER_EX),
        Call::Mmap,
    ];
    let call = calls[w.below(5) as usize];
    w.device.trim();
    let (live, usage) = (orin.live(), w.device.memory_usage());
    let wanted = plan(w, orin, name, call);
    failed(w.device.alloc::<u8>(LARGE), wanted)?;
    let now = orin.live();
    ensure((live.buffers, live.descriptors) == (now.buffers, now.descriptors), || {
        format!("a failed allocation leaked: {live:?}, now {now:?}")
    })?;
    ensure(usage.reserved >= w.device.memory_usage().reserved, || {
        "the allocator counts memory it does not have".to_owned()
    })?;
    w.soak.ledger.report(w.number, name);
    let large = w.device.alloc_zeroed::<u32>(LARGE / 4)?;
    equal("the end of a buffer", &large.slice(LARGE / 4 - 4..)?.to_vec()?, &[0; 4])
}

fn queue_fails(w: &mut Worker<'_>, orin: &SoftwareOrin, name: &'static str) -> Check {
    let codes = [
        ctrl::code::OPEN_TSG,
        ctrl::code::OPEN_CHANNEL,
        tsg::code::CREATE_SUBCONTEXT,
        tsg::code::BIND_CHANNEL_EX,
        channel::code::SETUP_BIND,
        channel::code::ALLOC_OBJ_CTX,
    ];
    let code = codes[w.below(6) as usize];
    let live = orin.live();
    let wanted = plan(w, orin, name, Call::Ioctl(code));
    failed(w.device.queue(), wanted)?;
    let now = orin.live();
    ensure((live.channels, live.tsgs, live.syncpoints) == (now.channels, now.tsgs, now.syncpoints), || {
        format!("a queue that failed to open leaked: {live:?}, now {now:?}")
    })?;
    w.soak.ledger.report(w.number, name);
    go_on(w)
}

/// Submits a launch that adds 1 to each of 32 words.
fn add_one(w: &mut Worker<'_>, data: &tegra_hcq::Buffer<u32>) -> Result<Fence, Error> {
    let increment = w.basic("increment")?;
    unsafe { w.queue.launch(&increment, 1, 32, &args![data, 32_u32]) }?;
    w.queue.submit()
}

/// Fails unless a short wait times out.
fn runs_out(fence: &Fence) -> Check {
    match fence.wait(SHORT) {
        Err(Error::Timeout { .. }) => Ok(()),
        other => Err(format!("expected a time-out, got {other:?}").into()),
    }
}

/// Submits until a doorbell is lost. Returns the fence of that submission and the number of submissions
/// before it. An earlier doorbell that the GPU has not read yet may be lost instead; that one has no waiter.
fn lose_one(
    w: &mut Worker<'_>,
    orin: &SoftwareOrin,
    data: &tegra_hcq::Buffer<u32>,
) -> Result<(Fence, u32), Box<dyn std::error::Error + Send + Sync>> {
    let end = Instant::now() + w.patience();
    for before in 0.. {
        orin.lose_doorbells(1);
        let fence = add_one(w, data)?;
        // Until the GPU reads it, the next doorbell would be lost with this one.
        while orin.doorbells_to_lose() > 0 && Instant::now() < end {
            std::thread::yield_now();
        }
        match fence.wait(SHORT) {
            Ok(()) if Instant::now() < end => {}
            Err(Error::Timeout { .. }) => return Ok((fence, before)),
            other => return Err(format!("no doorbell is lost: {other:?}").into()),
        }
    }
    Err("no doorbell is lost".into())
}

fn lost_doorbell(w: &mut Worker<'_>, orin: &SoftwareOrin, name: &'static str) -> Check {
    let data = w.device.alloc_zeroed::<u32>(32)?;
    let rung_again = w.below(2) == 0;
    w.soak.ledger.inject(w.number, name, if rung_again { "rung again" } else { "recovered" });
    let (fence, before) = lose_one(w, orin, &data)?;
    let wanted = before
        + if rung_again {
            // The next submission's doorbell serves both.
            let next = add_one(w, &data)?;
            w.finish(&next)?;
            w.finish(&fence)?;
            2
        } else {
            let recovery = w.device.recover()?;
            ensure((recovery.hanging, recovery.faults.len()) == (1, 0), || format!("{recovery:?}"))?;
            let fault = reported(&fence, w.patience())?;
            ensure(fault.kind == FaultKind::Abandoned, || format!("expected an abandoned launch: {fault}"))?;
            let next = add_one(w, &data)?;
            w.finish(&next)?;
            1
        };
    w.soak.ledger.report(w.number, name);
    equal("the sum after a lost doorbell", &data.to_vec()?, &[wanted; 32])
}

fn stalled_engines(w: &mut Worker<'_>, orin: &SoftwareOrin, name: &'static str) -> Check {
    let data = w.device.alloc_zeroed::<u32>(32)?;
    w.soak.ledger.inject(w.number, name, "all");
    orin.stall_engines(true);
    let submitted = add_one(w, &data);
    let ran_out = submitted.as_ref().map(runs_out);
    // The engines continue in any case.
    orin.stall_engines(false);
    ran_out.map_err(ToString::to_string)??;
    w.soak.ledger.report(w.number, name);
    let fence = submitted?;
    w.finish(&fence)?;
    equal("the sum after a stall", &data.to_vec()?, &[1; 32])
}

fn silent_fault(w: &mut Worker<'_>, orin: &SoftwareOrin, name: &'static str) -> Check {
    let address = 0x50_0000_0000 + u64::from(w.below(1 << 20)) * 0x1000;
    w.soak.ledger.inject(w.number, name, &format!("write to {address:#x}"));
    let kernel = w.faults.kernel("fault_write")?;
    orin.silence_faults(true);
    unsafe { w.queue.launch(&kernel, 1, 1, &args![address, 1_u32]) }?;
    let submitted = w.queue.submit();
    let fault = submitted.map(|fence| reported(&fence, w.patience()));
    orin.silence_faults(false);
    let fault = fault??;
    // The notifier holds the kind; the rest would be in the log.
    ensure(
        fault.kind == FaultKind::Mmu && fault.address.is_none() && place(&fault) == Some("fault_write"),
        || format!("expected an MMU fault without address: {fault}; log {:?}", fault.log),
    )?;
    w.soak.ledger.report(w.number, name);
    go_on(w)
}

fn allocation_limit(w: &mut Worker<'_>, orin: &SoftwareOrin, name: &'static str) -> Check {
    w.device.trim();
    let limit = orin.live().memory_bytes + (1 << 20);
    w.soak.ledger.inject(w.number, name, &format!("{limit} bytes"));
    orin.limit_allocations(limit);
    let result = w.device.alloc::<u8>(LARGE);
    orin.limit_allocations(u64::MAX);
    match result {
        Err(Error::OutOfMemory { wanted, .. }) if wanted == LARGE as u64 => {}
        Err(error) => return Err(format!("expected an out-of-memory error: {error}").into()),
        Ok(_) => return Err("the allocation exceeded the limit".into()),
    }
    w.soak.ledger.report(w.number, name);
    let large = w.device.alloc_zeroed::<u32>(LARGE / 4)?;
    equal("the start of a buffer", &large.slice(..4)?.to_vec()?, &[0; 4])
}

/// Slow, but no failure.
fn slow_power_up(w: &mut Worker<'_>, orin: &SoftwareOrin, name: &'static str) -> Check {
    let time = Duration::from_millis(u64::from(1 + w.below(50)));
    w.soak.ledger.inject(w.number, name, &format!("{time:?}"));
    orin.power_down(time);
    drop(w.device.queue()?);
    w.soak.ledger.report(w.number, name);
    go_on(w)
}
