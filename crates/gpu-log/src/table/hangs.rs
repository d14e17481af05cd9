//! Lines about work that does not end, and about a GPU that is out of service.

use super::lines;

const AROUND: &str = "See the surrounding lines.";
const CAUSE: &str = "Reboot; the first error above is the cause.";
const REPORT: &str = "Reboot and report the lines to NVIDIA.";
const CONTEXT: &str = "Check va_range_end (0xfc00000000) and ring sizes; otherwise reboot.";
const ECC: &str = "Do not trust results since then. Restart; replace the module if this happens again.";

lines! {
    /// A line about a hang, a time-out or the end of the GPU.
    HangLine in HANGS;

    Cause Error Hang "Host pfifo ctxsw timeout error"
        => SwitchTimeout,
        "An engine did not switch contexts for 100 ms. The kernel counts up to 3 s.",
        "A kernel hangs, or runs too long while other work waits: shorten it, or allow preemption inside a kernel.";
    Cause Error Hang "ctxsw timeout error: active engine"
        => SwitchTimeoutEnd { tsg: u32, ms: u32 }
        "ctxsw timeout error: active engine id =0, tsg={tsg}, info: awaiting ack ms={ms}",
        "A TSG kept its engine longer than its limit; the kernel ends it.",
        "A kernel hangs, or runs too long while other work waits: shorten it, allow preemption inside a kernel, or \
         raise the limit with SET_TIMEOUT_EX.";
    Cause Error Hang "ctxsw intr0 set by ucode",
        "The context-switch firmware reports an error.",
        CONTEXT;
    Cause Error Hang "fecs fault during ctxsw",
        "The context-switch firmware hit a fault.",
        CONTEXT;
    Cause Error Hang "fecs watchdog triggered",
        "The context-switch firmware does not respond.",
        "Reboot if it does not recover.";
    Cause Error Hang "Job on channel*timed out"
        => JobTimeout { channel: u32 } "Job on channel {channel} timed out",
        "The watchdog ended a job of a channel that submits through the kernel.",
        "Shorten the job, or raise or disable the watchdog limit.";
    Cause Error Hang "semaphore acquire timeout!"
        => AcquireTimeout,
        "A semaphore acquire timed out.",
        "Find out which release is missing.";
    Detail Error Hang "preempt timeout eng"
        => PreemptEngine { tsg: u32 } "preempt timeout eng: 0 ctx_stat: 5 tsgid: {tsg}",
        "An engine still has the context of a TSG that the kernel preempts.",
        "A kernel hangs or runs too long. Reset the channel before it is closed (FORCE_RESET), or allow preemption \
         inside a kernel.";
    Detail Error Hang "preempt time"
        => PreemptTimeout { tsg: u32 }
        "preempt timed out for tsgid: {tsg}, ctxsw timeout will trigger recovery if needed",
        "The kernel could not preempt a TSG within 100 ms.",
        "A kernel hangs or runs too long; recovery follows if it does not end.";
    Detail Error Hang "preempt failed"
        => PreemptFailed { error: i32 } "preempt failed {error}",
        "The kernel could not preempt a TSG or a host engine.",
        "Recovery follows; see the lines below.";
    Detail Error Hang "still waiting,*left:",
        "close() of a channel waits for the channel's last users.",
        "Find the thread that still has a request or a mapping of the channel.";
    Cause Error Hang "unbind failed, tearing down TSG"
        => TsgTornDown { channel: u32, tsg: u32 } "Channel {channel} unbind failed, tearing down TSG {tsg}",
        "A channel was closed while its work did not stop; the kernel ends its TSG.",
        "Wait for the work before closing the channel; see the lines above.";
    Detail Error Hang "unbind common failed"
        => UnbindFailed { error: i32 } "unbind common failed, err={error}",
        "A channel could not leave its TSG.",
        AROUND;
    Detail Error Hang "failed to unbind channel",
        "A channel could not leave its TSG.",
        AROUND;
    Cause Error Hang "abort active tsgs of runlists",
        "The kernel ends every TSG of a runlist.",
        "See the lines above. Every program on the GPU must create its channels again.";
    Cause Error Fatal "cannot recover stuck PBDMA",
        "A host engine is permanently stuck.",
        "Reboot.";
    Cause Error Fatal "SW quiesce requested"
        => QuiesceRequested {} "nvgpu_sw_quiesce_bug_cb:0 SW quiesce requested",
        "The driver takes the GPU out of service.",
        CAUSE;
    Cause Error Fatal "SW quiesce thread running"
        => QuiesceRunning,
        "The driver takes the GPU out of service.",
        CAUSE;
    Cause Error Fatal "SW quiesce already pending"
        => QuiescePending {} "nvgpu_sw_quiesce_bug_cb:0 SW quiesce already pending",
        "The driver already takes the GPU out of service.",
        CAUSE;
    Cause Error Fatal "SW quiesce",
        "The driver has taken the GPU out of service.",
        CAUSE;
    Cause Error Fatal "Entering SW Quiesce",
        "The driver has taken the GPU out of service.",
        CAUSE;
    Cause Error Fatal "kernel BUG at",
        "The driver reached a state that it considers impossible.",
        REPORT;
    Cause Error Hardware "runlist bad tsg",
        "The scheduler's list is corrupt.",
        REPORT;
    Cause Error Hardware "unhandled runlist(",
        "The scheduler raised an interrupt unknown to the driver.",
        "Reboot if work stops.";
    Cause Error Hardware "PRI timeout: ADR",
        "A GPU register did not respond.",
        "Reboot. If this happens again, check power supply and temperature.";
    Detail Error Hardware "FECS_ERRCODE 0x",
        "Detail of a register error.",
        AROUND;
    Cause Error Hardware "write error: ADR",
        "A write to a GPU register failed.",
        "Reboot. If this happens again, report the lines to NVIDIA.";
    Cause Error Hardware "Double bit error detected in GPU L2",
        "The L2 cache lost data.",
        ECC;
    Cause Error Hardware "ecc error uncorrected",
        "A memory of the GPU lost data.",
        ECC;
}
