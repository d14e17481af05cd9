//! Watchdog, error notifier, preemption and reset.

use super::{CLOSED, setup_with};
use crate::support::rules::*;
use crate::support::*;
use kernel_door::{DoorFd, Errno};
use nvgpu_sys::channel;

fn notifier(fd: &DoorFd, mem: u32, offset: u64) -> Answer {
    let mut args = channel::SetErrorNotifier { offset, size: u64::MAX, mem, padding: 0 };
    channel::SET_ERROR_NOTIFIER.send(fd, &mut args)
}

/// Returns whether the channel's old notifier is still in use after `spoil`.
fn survives(bench: &Bench, spoil: impl FnOnce(&DoorFd) -> Answer) -> Answer {
    let (_space, _tsg, channel) = bench.bound();
    let buffer = bench.buffer(4096);
    notifier(&channel, raw(&buffer), 0).unwrap();
    let error = spoil(&channel).unwrap_err();
    channel::FORCE_RESET.send(&channel, 0).unwrap();
    let memory = cpu(&buffer, 4096);
    let written = word(&memory, 8).load(core::sync::atomic::Ordering::Acquire);
    if written == 43 { Ok(error.raw_os_error()) } else { Err(error) }
}

pub(crate) const CONTROL: &[Rule] = &[
    (
        "6.5: a deterministic channel may disable its watchdog again, with any other bit",
        Ok(0),
        &[],
        |bench| {
            let (_space, _tsg, channel) = bench.bound();
            setup_with(bench, &channel, |_| ()).unwrap();
            for status in [0, 2, 3, 6] {
                assert_eq!(wdt(&channel, status), INVAL, "{status}");
            }
            wdt(&channel, 1 | 4 | 8 | 0x100)
        },
    ),
    ("6.5: a refused status leaves the watchdog off", Ok(0), &[], |bench| {
        let (_space, _tsg, channel) = bench.bound();
        assert_eq!(wdt(&channel, 3), INVAL);
        setup_with(bench, &channel, |_| ())
    }),
    (
        "6.6: mem 0 keeps the old notifier",
        Ok(Errno::INVAL.raw_os_error()),
        &[
            "gk20a_init_error_notifier: invalid memory handle",
            "error notifier set to 43 for ch 511 owned by rules::channel_",
        ],
        |bench| survives(bench, |fd| notifier(fd, 0, 0)),
    ),
    (
        "6.6: a bad descriptor drops it, and wins over a bad offset",
        INVAL,
        &["Invalid handle: 2147418112"],
        |bench| survives(bench, |fd| notifier(fd, CLOSED as u32, u64::MAX)),
    ),
    (
        "6.6: a bad offset drops it, and wins over missing memory",
        INVAL,
        &["gk20a_init_error_notifier: invalid offset"],
        |bench| {
            let bare = bench.export(bench.create(4096));
            survives(bench, |fd| notifier(fd, raw(&bare), 4081))
        },
    ),
    ("6.6: an offset that overflows", INVAL, &["gk20a_init_error_notifier: invalid offset"], |bench| {
        notifier(&bench.channel(), raw(&bench.buffer(4096)), u64::MAX - 7)
    }),
    ("6.6: missing memory drops it", NOMEM, &["Cannot map notifier handle"], |bench| {
        let bare = bench.export(bench.create(4096));
        survives(bench, |fd| notifier(fd, raw(&bare), 4080))
    }),
    ("6.7: PREEMPT without a TSG wins over stuck engines", INVAL, &[], |bench| {
        stalled(bench, || channel::PREEMPT.send(&bench.channel(), 0))
    }),
    (
        "6.7: PREEMPT returns the result of the enable only; its time-out is only logged",
        Ok(0),
        &["preempt timed out for tsgid: 0, ctxsw timeout will trigger recovery if needed"],
        |bench| {
            let (_space, _tsg, channel) = bench.bound();
            stalled(bench, || channel::PREEMPT.send(&channel, 0))
        },
    ),
    ("6.7: FORCE_RESET without a TSG", Ok(0), &["chid: 511 is not bound to tsg"], |bench| {
        channel::FORCE_RESET.send(&bench.channel(), 0)
    }),
    ("6.12: before it joins a TSG, a channel is out of service", Ok(0), &[], |bench| {
        let (space, tsg, channel) = (bench.space(), bench.tsg(), bench.channel());
        bind_space(&space, &channel).unwrap();
        assert!(timed_out(&channel));
        let result = bind_tsg(&tsg, &channel, 0);
        assert!(!timed_out(&channel));
        result
    }),
    (
        "6.15: closing a channel stuck on the engines ends its TSG without a notifier",
        Ok(0),
        &["unbind common failed, err=-11", "Channel 511 unbind failed, tearing down TSG 0"],
        |bench| {
            let (space, tsg, channel) = bench.bound();
            let (other, buffer) = (join(bench, &space, &tsg, 0), bench.buffer(4096));
            notifier(&other, raw(&buffer), 0).unwrap();
            stalled(bench, || drop(channel));
            assert!(timed_out(&other));
            let memory = cpu(&buffer, 4096);
            Ok(word(&memory, 12).load(core::sync::atomic::Ordering::Acquire).cast_signed())
        },
    ),
    ("6.5: status 0", INVAL, &[], |bench| wdt(&bench.channel(), 0)),
    ("6.6: mem 0", INVAL, &["gk20a_init_error_notifier: invalid memory handle"], |bench| {
        notifier(&bench.channel(), 0, 0)
    }),
    ("6.6: a descriptor that is not a dma-buf", INVAL, &["…"], |bench| {
        notifier(&bench.channel(), raw(&bench.ctrl), 0)
    }),
];
