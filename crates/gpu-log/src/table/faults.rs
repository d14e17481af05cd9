//! Lines about faults of work on the GPU. Severity and wording are nvgpu's own (`hal/fb`, `hal/gr`, `hal/fifo`,
//! `hal/ce`).

use super::lines;

/// Cure for a fault that ended a channel.
const REBUILD: &str = "Create a new TSG and channels (a new queue); address space and buffers remain valid.";
/// Cure if another line has the cause.
const ABOVE: &str = "See the lines above.";
const AROUND: &str = "See the surrounding lines.";
const SM_STATE: &str = "See the `sm err state` line.";
const REPORT: &str = "Reboot and report the lines to NVIDIA.";
const FIRMWARE: &str = "Do not send firmware methods.";
const METHOD: &str = "Check the subchannel and the method's address.";

lines! {
    /// A line about a fault of work on the GPU.
    FaultLine in FAULTS;

    Cause Error Mmu "page fault error: err_type"
        => PageFault { err_type: u32 } "page fault error: err_type = {err_type:#x}, fault_status = 0x200",
        "The MMU raised an interrupt: an access failed.",
        "See the `[MMU FAULT]` line that follows.";
    Cause Error Mmu "[MMU FAULT] mmu engine id*fault addr:"
        => MmuFault { engine: u32, channel: u32, address: u64, fault_type: String, access_type: String }
        "[MMU FAULT] mmu engine id:  {engine}, ch id:  {channel}, fault addr: {address:#x}, fault addr aperture: 0, \
         fault type: {fault_type}, access type: {access_type}, ",
        "Page address, reason and type of the access that the MMU refused.",
        "Find the buffer that ends before the address or was freed. An address in 0xfd00000000..0xff00000000 is in a \
         shader window.";
    Detail Error Mmu "[MMU FAULT] protected mode"
        => MmuClient { client_type: String, client: String, gpc: u32 }
        "[MMU FAULT] protected mode: 0, client type: {client_type}, client id:  {client}, gpc id if client type is \
         gpc: {gpc}, ",
        "The unit that made the access: client type gpc is a kernel, hub is the host or a copy engine.",
        REBUILD;
    Detail Error Mmu "mmu fault id=*id_type="
        => MmuRecovery { tsg: u32 } "mmu fault id={tsg} id_type=1 act_eng_bitmask=00000001",
        "Recovery starts: the kernel disables the TSG named here.",
        REBUILD;
    Detail Error Mmu "generated a mmu fault"
        => MmuTsg { tsg: u32 } "TSG {tsg} generated a mmu fault",
        "The kernel ends the TSG.",
        REBUILD;
    Cause Error Fatal "BAR2 MMU FAULT",
        "An access of the driver itself failed.",
        REPORT;
    Cause Error Fatal "PHYSICAL MMU FAULT",
        "An access without translation failed.",
        REPORT;
    Cause Error Mmu "non replayable overflow: buffer full",
        "The fault buffer overflowed.",
        "Look at the first fault; many threads hit the same one.";
    Cause Error Mmu "dropped mmu fault",
        "The kernel could not read a fault in time.",
        "Look at the faults above.";
    Cause Error Sm "sm machine check err",
        "An SM stopped because an instruction of a kernel failed.",
        "See the `sm err state` line; its program counter identifies the instruction.";
    Cause Error Mmu "sm err state*hww_warp_esr 32,",
        "The MMU refused an access of an SM (warp error 0x20). ESR values are decimal.",
        "Find the buffer that ends before the address of the `[MMU FAULT]` line or was freed; the program counter \
         identifies the instruction.";
    Cause Error Sm "sm err state*hww_warp_esr 16,",
        "An SM accessed the wrong address space (warp error 0x10). ESR values are decimal.",
        "Check pointers. A buffer inside the shared or local window causes this: end the address space at \
         0xfc00000000.";
    Cause Error Sm "sm err state*hww_warp_esr 15,",
        "An SM used a misaligned address (warp error 0xf). ESR values are decimal.",
        "Check vector loads and pointer casts at the program counter.";
    Cause Error Sm "sm err state*hww_warp_esr 14,",
        "An SM used an address outside shared or local memory (warp error 0xe). ESR values are decimal.",
        "Check array bounds in shared memory and the stack size.";
    Cause Error Sm "sm err state*hww_warp_esr 9,",
        "An SM fetched an invalid instruction (warp error 9). ESR values are decimal.",
        "Check that the cubin is for sm_87 and that nothing overwrote it.";
    Cause Error Sm "sm err state"
        => SmState { tpc: usize, offset: usize, sm: usize, global_esr: u32, warp_esr: u32, pc: u64 }
        "sm err state gpc_id(0), tpc_id({tpc}), offset({offset}), sm_id({sm}), hww_global_esr {global_esr},\
         hww_warp_esr {warp_esr}, hww_warp_esr_pc {pc:#x}",
        "An SM stopped a warp. `hww_warp_esr` (decimal) has the reason; 0 is a trap.",
        "The program counter identifies the instruction: subtract the kernel's load address and disassemble.";
    Detail Error Mmu "sm hww global*warp 0x00000020",
        "The same values in hexadecimal: the MMU refused the access.",
        SM_STATE;
    Detail Error Sm "sm hww global"
        => SmRegisters { global_esr: u32, warp_esr: u32 } "sm hww global {global_esr:#010x} warp {warp_esr:#010x}",
        "Global and warp error of the SM, in hexadecimal.",
        SM_STATE;
    Detail Error Notifier "set gr exception notifier"
        => ExceptionNotifier,
        "The kernel ends the channel after an engine exception.",
        REBUILD;
    Cause Error LaunchDescriptor "sked exception: esr"
        => DescriptorRefused { esr: u32 } "sked exception: esr {esr:#010x}",
        "The compute scheduler refused a launch descriptor (QMD).",
        "Compare the descriptor with a working one: version, sizes, addresses, shared-memory configuration. Set both \
         memory windows before the first launch.";
    Cause Error Method "class error*offset"
        => ClassError { method: u32, subchannel: u32 }
        "class error 0x00000001, offset {method:#010x},sub channel {subchannel:#010x} mme generated 0, mme pc \
         0x00000000data high 0 priv status 0 unhandled intr 0x00000000 for channel ",
        "The engine refused a method or its data; `offset` is the method.",
        "Decode the pushbuffer and compare the method's value with the class header.";
    Detail Error Method "trapped data"
        => TrappedData { data: u32 } "trapped data low {data:#010x}",
        "Data of the refused method.",
        "See the `class error` line.";
    Detail Error Method "class error"
        => ClassErrorEnd,
        "The graphics engine reported a class error.",
        REBUILD;
    Cause Error Method "invalid class *, offset"
        => InvalidClass { class: u32, method: u32 } "invalid class {class:#010x}, offset {method:#010x}",
        "A method of a class that the channel does not have.",
        "Send SET_OBJECT with the class passed to ALLOC_OBJ_CTX first.";
    Cause Error Method "invalid method class"
        => InvalidMethod { class: u32, method: u32, trapped: u32 }
        "invalid method class {class:#010x}, offset {method:#010x} address {trapped:#010x}",
        "The class has no such method.",
        METHOD;
    Cause Error Method "illegal method"
        => IllegalMethod,
        "The class has no such method.",
        METHOD;
    Cause Error Method "illegal notify pending",
        "A notify method without a notifier.",
        "Do not send NOTIFY methods.";
    Cause Error Method "firmware method error",
        "The firmware refused a register write requested by a method.",
        FIRMWARE;
    Cause Error Method "firmware method 0x",
        "The firmware method does not exist.",
        FIRMWARE;
    Cause Error Method "exception: esr",
        "A unit of the graphics engine reports an exception.",
        "Decode the pushbuffer; check the last methods and the launch descriptor.";
    Cause Error Method "ssync exception",
        "A unit of the graphics engine reports an exception.",
        "Decode the pushbuffer; check the last methods.";
    Cause Error Pushbuffer "PBDMA intr PBENTRY invld",
        "A pushbuffer word is not a method header.",
        "Check length and address of the GPFIFO entry, and that nothing overwrote the pushbuffer in flight.";
    Cause Error Pushbuffer "PBDMA intr METHOD invld",
        "The host engine has no such method.",
        METHOD;
    Cause Error Pushbuffer "PBDMA intr SEMAPHORE",
        "A semaphore's address is misaligned or not accessible. The channel stays halted and the kernel sets no \
         notifier.",
        "Check the semaphore's address; close the channel and create a new one.";
    Cause Error Hang "PBDMA intr ACQUIRE timeout",
        "A semaphore acquire timed out.",
        "Find out which release is missing.";
    Cause Error Pushbuffer "PBDMA intr"
        => PbdmaInterrupt { name: String } "PBDMA intr {name} Error",
        "The host engine stopped; the name says at what.",
        "Check GPFIFO entries and pushbuffer. The kernel only logs kinds other than PBENTRY, METHOD, DEVICE and \
         PBCRC; the channel then stays halted.";
    Cause Error CopyEngine "hce err: pbdma_intr_1"
        => HostCopyError { bits: u32 } "hce err: pbdma_intr_1(0):{bits:#010x}",
        "The copy engine has no such method (bit 3) or class (bit 4), or the channel lacks the privilege (bit 2: \
         physical memory).",
        "Check subchannel, method and LAUNCH_DMA. User space can copy virtual addresses only.";
    Detail Error Pushbuffer "pbdma_intr_"
        => PbdmaRegisters { bits: u32, header: u32, shadow: u32 }
        "pbdma_intr_0(0):{bits:#010x} PBH: {header:08x} SHADOW: {shadow:08x} gp shadow0: 00000000 gp shadow1: \
         00000000M0: 00000000 00000000 00000000 00000000 ",
        "Registers of the host engine: PBH is the method header, SHADOW its data.",
        "See the `PBDMA intr` line.";
    Cause Error CopyEngine "ce launch error interrupt"
        => CopyRefused,
        "The copy engine refused a copy.",
        "Check LAUNCH_DMA, sizes and addresses of the copy.";
    Cause Error Fatal "ce: inst",
        "The copy engine's configuration or method buffer is corrupt.",
        REPORT;
    Detail Error CopyEngine "ce blocking pipe interrupt",
        "The copy engine stopped.",
        AROUND;
    Detail Error CopyEngine "copy engine*not idle",
        "A copy engine was busy while the kernel reset it.",
        "This follows another fault: see the lines above.";
    Detail Warning None "invalid error_notifier requested"
        => PrivateNotifier { code: u32 }
        "nvgpu_error_notifier_to_channel_notifier: invalid error_notifier requested {code}",
        "The notifier number is internal to the driver (11: copy engine).",
        AROUND;
    End Information None "error notifier set to 43 for ch",
        "The kernel reset a channel on request.",
        "";
    End Error Notifier "error notifier set to"
        => NotifierSet { code: u32, channel: u32, owner: String }
        "error notifier set to {code} for ch {channel} owned by {owner}",
        "The kernel ended a channel. Codes: 8 time-out, 11 copy engine, 13 engine exception, 31 MMU fault, 32 \
         pushbuffer.",
        REBUILD;
    Detail Warning None "unhandled gr intr",
        "An interrupt arrived while its channel was being removed.",
        ABOVE;
    Detail Warning None "pgraph intr:*channel_id: INVALID",
        "An interrupt arrived while its channel was being removed.",
        ABOVE;
    Detail Warning None "dropping method(",
        "The engine dropped a method while its channel was being removed.",
        ABOVE;
    Alone Information None "orin-sim: channel *ended before its fault"
        => LateFault { channel: u32, text: String }
        "orin-sim: channel {channel} ended before its fault was handled: {text}",
        "The software Orin: the program closed the channel before the kernel handled its fault.",
        "";
    Cause Error Fatal "orin-sim: a thread of the model panicked"
        => Panicked { text: String }
        "orin-sim: a thread of the model panicked: {text}; this is a bug of the software Orin: report it with this \
         text",
        "The software Orin has a bug. Its GPU does no more work.",
        "Report the line and what the program did. Every device on this software Orin must be opened again.";
    Detail Information None "orin-sim: channel "
        => Explanation { channel: u32, text: String } "orin-sim: channel {channel}: {text}",
        "The software Orin explains the fault of a channel.",
        "";
    Alone Error Strict "orin-sim: strict: "
        => Strict { channel: u32, text: String } "orin-sim: strict: channel {channel}: {text}",
        "Strict mode of the software Orin found a read of uninitialised memory, a race, or a stale cache.",
        "The line names the access and the missing command. A board produces wrong results instead, and only \
         sometimes.";
    Cause Warning None "orin-sim: deadlock"
        => Deadlock { text: String } "orin-sim: deadlock unless the CPU helps: {text}",
        "No channel can make progress: each waits for a semaphore. The lines name channel, expected value and current \
         value.",
        "Find out which release is missing. If the CPU releases the semaphore later, this is not an error.";
}
