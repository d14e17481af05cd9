//! Refused requests of TSGs, channels, syncpoints and events.

use super::lines;

const BIND_FIRST: &str = "Bind the address space, then the TSG, then set up the channel.";
const ONE_RING: &str = "A channel has one ring; create a second channel.";
const ABOVE: &str = "See the lines above.";
const FD: &str = "Pass the descriptor returned by GET_FD.";
const END: &str = "End the address space at 0xfc00000000.";
const OTHER_TSG: &str = "Use another TSG.";
const COMPUTE: &str = "Use compute.";
const POWER: &str = "Look for earlier errors; reboot if this persists.";
const CODE: &str = "Check the request code with `cargo xtask check-headers`.";
const PREEMPTION: &str = "Set another preemption mode.";

lines! {
    /// A line about a refused request of a TSG, channel, syncpoint or event.
    ChannelLine in CHANNELS;

    Alone Error Refused "not bound to an address space at time of setup_bind"
        => SetupWithoutSpace,
        "SETUP_BIND before BIND_CHANNEL of an address space.",
        BIND_FIRST;
    Alone Error Refused "not bound to tsg at time of setup_bind"
        => SetupWithoutTsg,
        "SETUP_BIND before the channel is in a TSG.",
        BIND_FIRST;
    Alone Error Refused "usermode buffers allocated"
        => SetupTwice { channel: u32 } "channel {channel} : usermode buffers allocated",
        "SETUP_BIND twice.",
        ONE_RING;
    Alone Error Refused "gpfifo already allocated"
        => RingTwice { channel: u32 } "channel {channel} :gpfifo already allocated",
        "SETUP_BIND twice.",
        ONE_RING;
    Alone Error Refused "deterministic is not compatible with watchdog"
        => DeterministicWatchdog,
        "SETUP_BIND: the watchdog of a deterministic channel is on.",
        "Send WDT with status 1 (off) first.";
    Alone Error Refused "need deterministic for usermode submit"
        => NotDeterministic,
        "SETUP_BIND: user-mode submission requires the DETERMINISTIC flag.",
        "Pass flags 0xa.";
    Alone Error Refused "Usermode buffer alloc failed"
        => UsermodeBuffers,
        "SETUP_BIND: the ring or USERD buffer cannot be used.",
        "Use two separate buffers, offset 0, with at least 8 bytes of ring per entry.";
    Alone Error Refused "nvgpu_channel_setup_bind*[ERR]  fail"
        => SetupFailed {} "fail",
        "The kernel refused SETUP_BIND; the lines above have the reason.",
        ABOVE;
    Alone Error Refused "not bound to address space at time of grctx"
        => ContextWithoutSpace {} "not bound to address space at time of grctx allocation",
        "ALLOC_OBJ_CTX before BIND_CHANNEL of an address space.",
        "Bind the address space, then the TSG, then set up the channel, then allocate the object.";
    Alone Error Refused "invalid obj class"
        => ObjectClass { class: u32 } "invalid obj class {class:#x}",
        "ALLOC_OBJ_CTX: the engine does not have this class.",
        "Read the classes from GET_CHARACTERISTICS.";
    Alone Error Refused "SCG, with or without Sync Compute - CILP not allowed"
        => CilpWithCompute,
        "ALLOC_OBJ_CTX: compute beside graphics excludes compute preemption at instruction level (CILP).",
        PREEMPTION;
    Alone Error Refused "SCG without Sync Compute - CILP not allowed"
        => CilpWithGraphics,
        "ALLOC_OBJ_CTX: graphics beside asynchronous compute excludes compute preemption at instruction level (CILP).",
        PREEMPTION;
    Alone Error Refused "config. CILP not allowed"
        => CilpConfig {} "Invalid class/veid/pbdma config. CILP not allowed.",
        "ALLOC_OBJ_CTX: the preemption mode conflicts with graphics.",
        PREEMPTION;
    Alone Error Refused "Invalid class/veid/pbdma config"
        => ClassConfig,
        "ALLOC_OBJ_CTX: the class conflicts with the subcontext.",
        "Use compute on an asynchronous subcontext.";
    Alone Error Refused "Can't have Graphics in non-zero'th PBDMA"
        => GraphicsPbdma,
        "ALLOC_OBJ_CTX: graphics requires host engine 0.",
        COMPUTE;
    Alone Error Refused "Can't have Graphics in non-zero'th VEID"
        => GraphicsSubcontext,
        "ALLOC_OBJ_CTX: graphics requires subcontext 0.",
        COMPUTE;
    Alone Error Refused "VEID0 can't do Graphics and Async Compute"
        => GraphicsAndCompute,
        "ALLOC_OBJ_CTX: graphics and asynchronous compute on subcontext 0.",
        "Use another subcontext.";
    Alone Error Refused "Async Compute can't be mixed with Graphics"
        => MixedPbdma {} "Async Compute can't be mixed with Graphics on PBDMA0",
        "ALLOC_OBJ_CTX: graphics and asynchronous compute on one host engine.",
        OTHER_TSG;
    Alone Error Refused "CILP not allowed",
        "ALLOC_OBJ_CTX: the preemption mode conflicts with graphics.",
        PREEMPTION;
    Alone Error Refused "VM does not match with subcontext VM"
        => SubcontextSpace {} "channel VM does not match with subcontext VM",
        "The channel and its subcontext have different address spaces.",
        "Bind both to the same address space.";
    Alone Error Refused "channel/subctx VM mismatch",
        "The channel and its subcontext have different address spaces.",
        "Bind both to the same address space.";
    Alone Error Refused "ASYNC & SYNC VEIDs not available"
        => NoSubcontext,
        "The TSG has no subcontext left.",
        "Delete one; a TSG has 64.";
    Alone Error Refused "SYNC VEID not available"
        => SyncSubcontextTaken,
        "The TSG already has its synchronous subcontext, or none is free.",
        "Use an asynchronous one, or delete one.";
    Alone Error Refused "Invalid subcontext type"
        => SubcontextType { value: u32 } "Invalid subcontext type {value}",
        "CREATE_SUBCONTEXT: the type does not exist.",
        "Use 0 (synchronous) or 1 (asynchronous).";
    Alone Error Refused "Invalid VM (fd ="
        => NotASpace { fd: i32 } "Invalid VM (fd = {fd}) specified for subcontext",
        "CREATE_SUBCONTEXT: the descriptor is not an address space.",
        "Pass the descriptor returned by ALLOC_AS.";
    Alone Error Refused "runlist_id mismatch"
        => RunlistMismatch { channel: u32, tsg: u32 } "runlist_id mismatch ch[{channel}] tsg[{tsg}]",
        "All channels of a TSG must use one runlist.",
        OTHER_TSG;
    Alone Error Refused "trying to bind more than supported channels"
        => TsgFull { tsg: u32, limit: usize } "TSG {tsg} trying to bind more than supported channels ({limit})",
        "The TSG is full.",
        OTHER_TSG;
    Alone Error Refused "Source device inst id/token not specified"
        => TokenMissing,
        "OPEN_TSG: the SHARE flag requires a token.",
        "Pass both or none.";
    Alone Error Refused "Source device inst id/token specified"
        => TokenWithoutFlag,
        "OPEN_TSG: a token requires the SHARE flag.",
        "Pass both or none.";
    Alone Error Refused "TSG open with token failed"
        => TokenInvalid,
        "OPEN_TSG: the token is no longer valid.",
        "Request a new token.";
    Alone Error Refused "is not bound to tsg"
        => NotInTsg { channel: u32 } "chid: {channel} is not bound to tsg",
        "The channel is not in a TSG.",
        "Bind the channel to a TSG first.";
    Alone Error Refused "set_ctxsw_preemption_mode failed"
        => PreemptionMode,
        "The kernel refused the preemption mode.",
        ABOVE;
    Alone Error Refused "failed to preempt channel"
        => PreemptChannel {} "failed to preempt channel/TSG",
        "The kernel could not preempt the TSG.",
        "Wait for the work first.";
    Alone Error Refused "failed to setup zcull"
        => Zcull,
        "The kernel refused a depth-culling buffer.",
        "Check its address.";
    Alone Error Refused "invalid num_entries"
        => ClockEntries { count: u32 } "invalid num_entries {count}",
        "CLK_SET_INFO: no entry, or too many.",
        "Pass one entry.";
    Alone Error Refused "invalid zbc table type"
        => ZbcType,
        "ZBC request: the type does not exist.",
        "Check type and index.";
    Alone Error Refused "invalid zbc"
        => ZbcIndex { table: String, index: usize } "invalid zbc {table} table index {index}",
        "ZBC request: the index does not exist.",
        "Check type and index.";
    Alone Error Refused "unrecognized tsg gpu ioctl"
        => UnknownTsgRequest { request: u32 } "unrecognized tsg gpu ioctl cmd: {request:#x}",
        "This driver does not have the TSG request.",
        CODE;
    Alone Error Refused "unrecognized tsg event id"
        => EventCommand { command: u32 } "unrecognized tsg event id cmd: {command:#x}",
        "EVENT_ID_CTRL: the command does not exist.",
        "Use 1 (enable).";
    Alone Error Refused "invalid memory handle"
        => NotifierHandle {} "gk20a_init_error_notifier: invalid memory handle",
        "SET_ERROR_NOTIFIER: the descriptor is not a buffer.",
        FD;
    Alone Error Refused "Invalid handle:"
        => NotifierDescriptor { fd: i32 } "Invalid handle: {fd}",
        "SET_ERROR_NOTIFIER: the descriptor is not a buffer.",
        FD;
    Alone Error Refused "gk20a_init_error_notifier: invalid offset"
        => NotifierOffset,
        "SET_ERROR_NOTIFIER: the record exceeds its buffer.",
        "Check the offset; a record has 16 bytes.";
    Alone Error Refused "Cannot map notifier handle"
        => NotifierMapping,
        "SET_ERROR_NOTIFIER: the kernel cannot map the buffer.",
        "Use an IOVMM buffer.";
    Alone Error Refused "failed to get free syncpt"
        => NoSyncpoint,
        "No syncpoint is left.",
        "Close channels that have one.";
    Alone Error Refused "failed to allocate syncpoint buffer"
        => SyncpointBuffer,
        "GET_USER_SYNCPOINT: the kernel cannot allocate the syncpoint's memory.",
        "Check free memory.";
    Alone Error Refused "failed to map syncpt buffer"
        => SyncpointAddress,
        "GET_USER_SYNCPOINT: no address is free.",
        END;
    Alone Error Refused "failed to host gk20a for ioctl"
        => NoPowerForChannel { request: u32 } "failed to host gk20a for ioctl cmd: {request:#x}",
        "The kernel could not power on the GPU for a request.",
        POWER;
    Alone Error Refused "failed to power on gpu for ioctl"
        => NoPowerForRequest { request: u32 } "failed to power on gpu for ioctl cmd: {request:#x}",
        "The kernel could not power on the GPU for a request of a TSG.",
        POWER;
    Alone Error Refused "failed to power on gpu"
        => NoPower,
        "The kernel could not power on the GPU for a request of a TSG.",
        POWER;
    Alone Error Refused "nvgpu_channel_open_new+",
        "OPEN_CHANNEL: the runlist does not exist (kernel WARNING).",
        "Pass -1.";
    Alone Error Refused "orin-sim: request*is not modelled"
        => RequestNotModelled { request: u32 } "orin-sim: request {request:#010x} is not modelled",
        "The software Orin does not model this request.",
        CODE;
    Alone Error Refused "orin-sim: node*is not modelled"
        => NodeNotModelled { path: String } "orin-sim: node {path} is not modelled",
        "The software Orin does not have this device node.",
        "Use the nvmap and ctrl nodes.";
    Alone Error Refused "orin-sim: the graphics context would end"
        => ContextAboveLimit { end: u64 }
        "orin-sim: the graphics context would end at {end:#x}, above the 40 bits of its pointer: a board freezes \
         here; choose a lower va_range_end or a smaller ring",
        "The graphics context ends above 2^40. A board freezes here.",
        "End the address space at 0xfc00000000; use smaller rings.";
    Alone Error Refused "orin-sim: GET_USER_SYNCPOINT on channel"
        => SyncpointWithoutSpace { channel: u32 }
        "orin-sim: GET_USER_SYNCPOINT on channel {channel} without an address space: a board's kernel follows a null \
         pointer here",
        "GET_USER_SYNCPOINT before BIND_CHANNEL of an address space. A board's kernel crashes here.",
        "Bind the address space first.";
    Alone Error Refused "orin-sim: SUBMIT_GPFIFO"
        => SyncpointAboveLimit { address: u64 }
        "orin-sim: SUBMIT_GPFIFO: the syncpoint at {address:#x} is above the 40 bits of a semaphore; choose a lower \
         va_range_end",
        "The address of the syncpoint is above 2^40.",
        END;
    Alone Error Refused "orin-sim: BIND_CHANNEL failed"
        => BindHangsClose { channel: u32 }
        "orin-sim: BIND_CHANNEL failed on channel {channel}: on a board its close() now hangs for ever; use \
         BIND_CHANNEL_EX",
        "BIND_CHANNEL failed. On a board, close() of this channel hangs.",
        "Use BIND_CHANNEL_EX.";
}
