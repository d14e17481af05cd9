//! Lines of the desktop driver (NVRM), the memory controller and the syncpoint unit.

use super::lines;
use crate::template::SplitHex;

const SANITIZER: &str = "Run the program under compute-sanitizer.";
const ABOVE: &str = "See the Xid above, if there is one.";

lines! {
    /// A line of the desktop driver or of another driver that serves the GPU.
    SystemLine in SYSTEM;

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
        "Restart; replace the board if this happens again.";
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
    Cause Error Unknown "NVRM: Xid"
        => Xid { device: String, number: u32, rest: String } "NVRM: Xid ({device}): {number}, {rest}",
        "Desktop driver: a fault. The number after the device is its kind.",
        "Look up the number in NVIDIA's list of Xid errors.";
    Alone Information None "NVRM: loading NVIDIA UNIX",
        "The desktop driver is loaded. On Orin it only drives displays.",
        "";
    Alone Information None "nvidia-uvm: Loaded",
        "The memory manager of the desktop driver is loaded.",
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
