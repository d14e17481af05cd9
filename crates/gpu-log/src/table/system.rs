//! Lines of the desktop driver (NVRM), the memory controller and the syncpoint unit.

use super::lines;
use crate::template::SplitHex;

const SANITIZER: &str = "Run the program under `orin check`; CUDA programs under compute-sanitizer.";
const RESET: &str = "Reset the GPU (nvidia-smi --gpu-reset) or reboot.";
const DIES: &str =
    "Stop all work on the GPU and reboot. If it happens again, check power, seating and temperature.";
const REPLACE: &str = "Restart; replace the board if this happens again.";
const MEMORY: &str = "Free memory of the GPU or of the host.";
const VERSIONS: &str = "Install driver and libraries of one version, and reboot.";
const ABOVE: &str = "See the Xid above, if there is one.";
const ABOVE_LINES: &str = "See the lines above.";

lines! {
    /// A line of the desktop driver or of another driver that serves the GPU.
    SystemLine in SYSTEM;

    Cause Error Mmu "NVRM: Xid*: 13,*MMU Fault",
        "Desktop driver: the MMU refused an access of an SM; an Xid 31 has the address.",
        SANITIZER;
    Cause Error Sm "NVRM: Xid*: 13,"
        => Exception { device: String, pid: String, name: String, register: u32, warp_esr: u32, rest: String }
        "NVRM: Xid ({device}): 13, pid={pid}, name={name}, Graphics Exception: ESR {register:#x}={warp_esr:#x} {rest}",
        "Desktop driver: an SM or engine exception.",
        SANITIZER;
    Cause Error Mmu "NVRM: Xid*: 31,"
        => MmuFault {
            device: String, pid: String, name: String, channel: u32, interrupt: u32, engine: String, client: String,
            address: SplitHex, fault_type: String, access_type: String
        }
        "NVRM: Xid ({device}): 31, pid={pid}, name={name}, channel {channel:#010x}, intr {interrupt:08x}. MMU Fault: \
         ENGINE {engine} {client} faulted @ {address}. Fault is of type {fault_type} {access_type}",
        "Desktop driver: an MMU fault. The line has address and access.",
        SANITIZER;
    Cause Error Pushbuffer "NVRM: Xid*: 32,",
        "Desktop driver: malformed pushbuffer.",
        "Check the code that writes the pushbuffer; otherwise suspect the bus.";
    Alone Warning None "NVRM: Xid*: 43,",
        "Desktop driver: it reset a channel after a fault of the channel's program.",
        ABOVE;
    Alone Warning None "NVRM: Xid*: 45,",
        "Desktop driver: it removed channels, for example of a killed program.",
        ABOVE;
    Cause Error Hardware "NVRM: Xid*: 48,",
        "Desktop driver: memory lost data (double-bit ECC error).",
        REPLACE;
    Cause Error Method "NVRM: Xid*: 69,",
        "Desktop driver: class error; the engine refused a method.",
        "Decode the pushbuffer.";
    Cause Error Hang "NVRM: Xid*: 109,",
        "Desktop driver: context switch time-out.",
        "Shorten kernels.";
    Cause Error Fatal "NVRM: Xid*: 79,",
        "Desktop driver: the GPU is no longer on the bus.",
        "Check power, seating and temperature; reboot.";
    Cause Error Hang "NVRM: Xid*: 119,",
        "Desktop driver: the GPU system processor (GSP) does not respond.",
        "Reset the GPU or reboot.";
    Cause Error Hang "NVRM: Xid*: 8,",
        "Desktop driver: a channel made no progress.",
        "Shorten kernels, or find the missing release.";
    Cause Error Pushbuffer "NVRM: Xid*: 11,",
        "Desktop driver: a method was refused.",
        "Decode the pushbuffer.";
    Alone Warning None "NVRM: Xid*: 56,",
        "Desktop driver: the display engine failed. Compute is not affected.",
        "Check cable and display; restart the display server.";
    Cause Error Hardware "NVRM: Xid*: 62,",
        "Desktop driver: the power-management unit (PMU) halted.",
        DIES;
    Alone Warning None "NVRM: Xid*: 63,",
        "Desktop driver: a page or row of the GPU's memory was retired after errors.",
        "Reset the GPU soon, so that the spare row is used.";
    Cause Error Hardware "NVRM: Xid*: 64,",
        "Desktop driver: a row of the GPU's memory could not be retired.",
        REPLACE;
    Cause Error Hardware "NVRM: Xid*: 74,",
        "Desktop driver: an NVLink connection failed.",
        "Reset the GPUs; check the bridge or the switch if this happens again.";
    Alone Warning None "NVRM: Xid*: 92,",
        "Desktop driver: many corrected memory errors.",
        "Watch for Xid 48, 94 and 95.";
    Cause Error Hardware "NVRM: Xid*: 94,",
        "Desktop driver: memory lost data of one program, which the driver ended.",
        "Restart the program.";
    Cause Error Hardware "NVRM: Xid*: 95,",
        "Desktop driver: memory lost data, of an unknown program.",
        "Do not trust results since then. Reset the GPU.";
    Cause Error Fatal "NVRM: Xid*: 120,",
        "Desktop driver: the GPU system processor (GSP) crashed.",
        RESET;
    Cause Error Fatal "NVRM: Xid*: 143,",
        "Desktop driver: the GPU could not be initialised.",
        DIES;
    Cause Error Fatal "NVRM: Xid*: 154,*Required",
        "Desktop driver: the GPU needs the named action before it does further work.",
        RESET;
    Alone Information None "NVRM: Xid*: 154,",
        "Desktop driver: the action that the GPU needs has changed.",
        "";
    Cause Error Unknown "NVRM: Xid"
        => Xid { device: String, number: u32, rest: String } "NVRM: Xid ({device}): {number}, {rest}",
        "Desktop driver: a fault. The number after the device is its kind.",
        "Look up the number in NVIDIA's list of Xid errors.";
    Cause Error Fatal "fallen off the bus",
        "Desktop driver: the GPU no longer answers on the bus.",
        DIES;
    Cause Error Fatal "NVRM*NV_ERR_GPU_IS_LOST",
        "Desktop driver: the GPU no longer answers on the bus.",
        DIES;
    Cause Error Fatal "NVRM:*Reset required",
        "Desktop driver: the GPU refuses work until it is reset.",
        RESET;
    Cause Error Refused "NVRM:*NV_ERR_NO_MEMORY",
        "Desktop driver: an allocation of the driver failed.",
        MEMORY;
    Cause Error Fatal "RmInitAdapter",
        "Desktop driver: the GPU could not be initialised.",
        "The lines above have the reason. Reset the GPU or reboot.";
    Detail Error Fatal "rm_init_adapter failed",
        "Desktop driver: the GPU could not be initialised.",
        ABOVE_LINES;
    Cause Error Fatal "WPR2 already up",
        "Desktop driver: the GPU's firmware was not stopped properly, so it cannot be started.",
        RESET;
    Cause Error Fatal "kgspBootGspRm",
        "Desktop driver: the firmware of the GPU system processor (GSP) did not start.",
        RESET;
    Cause Error Fatal "NVRM: kfsp",
        "Desktop driver: the boot processor of the GPU (FSP) did not start the firmware.",
        RESET;
    Cause Error Fatal "GSP-CrashCat",
        "Desktop driver: a report about a crash of the GPU system processor (GSP).",
        RESET;
    Cause Error Fatal "PmuHalted",
        "Desktop driver: the power-management unit (PMU) halted.",
        DIES;
    Detail Error Hang "GSP Timeout",
        "Desktop driver: the GPU system processor (GSP) does not respond.",
        RESET;
    Detail Error Fatal "rpcSendMessage failed",
        "Desktop driver: a request did not reach the GPU system processor (GSP).",
        RESET;
    Cause Error Hardware "Possible bad register read",
        "Desktop driver: a register did not respond.",
        RESET;
    Cause Error Refused "GspRmAlloc failed",
        "Desktop driver: the firmware refused to create an object; `status` is the reason (0x51 no memory, 0x62 reset \
         required).",
        "Look for an earlier Xid; otherwise free memory of the GPU.";
    Alone Warning None "GspRmControl failed",
        "Desktop driver: the firmware refused a request. Some are only attempts.",
        ABOVE;
    Cause Error Refused "intermapRegisterDmaMapping",
        "Desktop driver: memory of the host could not be mapped for the GPU.",
        MEMORY;
    Cause Error Refused "Failed to allocate NVKMS memory",
        "Desktop driver: there is no video memory for a buffer of the display.",
        MEMORY;
    Alone Warning None "trying to fall back to sysmem",
        "Desktop driver: video memory is full; the buffer is allocated in the host's memory.",
        "Free memory of the GPU if the display is slow.";
    Alone Warning None "Flip event timeout",
        "Desktop driver: a frame of the display was not shown in time. Compute is not affected.",
        ABOVE;
    Cause Error Refused "NVRM: API mismatch",
        "Desktop driver: the kernel module and the libraries are of different versions.",
        VERSIONS;
    Detail Information None "NVRM: this kernel module has the version",
        "Desktop driver: part of the report about versions.",
        "";
    Detail Information None "NVRM: make sure that this kernel module",
        "Desktop driver: part of the report about versions.",
        "";
    Cause Error Fatal "NVRM: No NVIDIA",
        "Desktop driver: there is no GPU that it drives.",
        "Check that the GPU is seated, that the driver supports it, and that no other driver has it.";
    Detail Information None "NVRM: (PCI ID:",
        "Desktop driver: the GPU that the next line is about.",
        "";
    Detail Information None "NVRM: The NVIDIA GPU",
        "Desktop driver: the GPU that the next lines are about.",
        "";
    Detail Information None "NVRM: This can occur when",
        "Desktop driver: an explanation of the line above.",
        "";
    Detail Error Fatal "NVIDIA init module failed",
        "Desktop driver: it was not loaded.",
        ABOVE_LINES;
    Cause Error Fatal "Cannot attach gpu",
        "Desktop driver: the GPU does not answer.",
        DIES;
    Detail Error Fatal "module->open() failed",
        "Desktop driver: a program could not open the GPU.",
        ABOVE_LINES;
    Cause Error Fatal "NVRM: None of the NVIDIA",
        "Desktop driver: no GPU could be initialised.",
        ABOVE_LINES;
    Cause Error Fatal "NVRM: The NVIDIA probe routine",
        "Desktop driver: a GPU was not taken over, often because another driver has it.",
        "Unload nouveau or vfio-pci, or exclude the GPU from them.";
    Cause Error Fatal "NVRM: Open nvidia.ko is only",
        "Desktop driver: the open kernel module does not support this GPU.",
        "Install the proprietary kernel module.";
    Alone Harmless None "gpumgrGetSomeGpu",
        "The display driver asks for a GPU before it has one. Each boot of an Orin prints it.",
        "";
    Alone Harmless None "Unrecognized AMD processor",
        "Desktop driver: it does not know the host's processor.",
        "";
    Alone Harmless None "Persistence mode is deprecated",
        "Desktop driver: advice about a setting.",
        "";
    Detail Information None "NVRM: GPU at PCI",
        "Desktop driver: the serial number of the GPU of the next Xid.",
        "";
    Detail Information None "RPC history",
        "Desktop driver: the last requests to the firmware before its failure.",
        "";
    Detail Information None "GSP RPC buffer contains",
        "Desktop driver: the firmware's last answer before its failure.",
        "";
    Alone Warning None "NVRM:*Assertion failed",
        "Desktop driver: a check of its own failed; the line names the file.",
        "See the lines around it. Alone it has no effect on work.";
    Alone Warning None "NVRM:*Check failed",
        "Desktop driver: a call inside of the driver failed; the line names the file.",
        "See the lines around it. Alone it has no effect on work.";
    Alone Warning None "nvidia-modeset: ERROR",
        "The display part of the desktop driver reports an error. Compute is not affected.",
        "Check cable and display; restart the display server.";
    Alone Warning None "nvidia-modeset: WARNING",
        "The display part of the desktop driver reports a warning. Compute is not affected.",
        "Nothing, unless the display is wrong.";
    Alone Information None "nvidia-modeset: ",
        "A note of the display part of the desktop driver.",
        "";
    Alone Warning None "NVRM:*failed",
        "Desktop driver: a call inside of the driver failed.",
        "See the lines around it. Alone it has no effect on work.";
    Alone Warning None "NVRM:*rror",
        "Desktop driver: an error without a row in this table.",
        "See the lines around it.";
    Alone Warning None "NVRM:*imed out",
        "Desktop driver: a wait inside of the driver took too long.",
        "See the lines around it.";
    Alone Harmless None "nvidia-peermem*invalid context",
        "The process that shared its memory with a network adapter ended first.",
        "";
    Alone Information None "nvidia-nvlink: ",
        "A note of the desktop driver about NVLink.",
        "";
    Alone Information None "NVRM: loading NVIDIA UNIX",
        "The desktop driver is loaded. On Orin it only drives displays.",
        "";
    Alone Information None "nvidia-uvm: Loaded",
        "The memory manager of the desktop driver is loaded.",
        "";
    Alone Information None "tegra-carveouts",
        "Memory that the firmware has reserved.",
        "";
    Alone Error Hardware "tegra-mc*gpu*error",
        "The memory controller refused an access of the GPU.",
        "An address referred to memory that the GPU may not use; see the GPU's own lines around it.";
    Alone Error Hardware "mc-err",
        "The memory controller refused an access.",
        "See the client of the access (`csr_gpu` is the GPU) and the surrounding lines.";
    Alone Warning None "syncpoint id*stuck",
        "The syncpoint unit waits for a value that no channel reaches.",
        "Find the channel that should increment the syncpoint.";
    Alone Warning None "orin-sim: ",
        "The software Orin explains what it refused or does not model.",
        "Read the line; a board prints nothing here.";
}
