//! Lines about the start of the Orin's GPU, its power and its firmware. The last rows name the unit of the driver whose
//! function prints an error; the lines themselves have no rows of their own.

use super::lines;

const ABOVE: &str = "See the lines above.";
const FIRMWARE: &str = "Reboot. If it happens at each boot, device tree, firmware, kernel and driver are not of one \
                        release or not for this module: flash it anew.";
const UNIT: &str = "Read the surrounding lines; search the driver's source for the text.";

lines! {
    /// A line about start, power or firmware of the GPU.
    StartLine in STARTUP;

    Cause Error Fatal "Failed initialization for:"
        => PowerOnFailed { step: String } "Failed initialization for: {step}",
        "The GPU could not be powered on; the line names the step that failed.",
        "The lines above have the reason. Every open of the GPU tries again.";
    Cause Error Refused "DMA alloc FAILED",
        "The driver could not allocate memory for itself. nvgpu calls this information, but the work that needs the \
         memory fails.",
        "Free memory. Physically addressed memory must be contiguous: raise the kernel parameter cma=, or start the \
         GPU soon after boot.";
    Detail Error Fatal "Failed to allocate comptags",
        "There is no contiguous memory for the tags of compressed buffers, so the GPU does not start.",
        "Raise the kernel parameter cma=, or start the GPU soon after boot.";
    Alone Warning None "cma_alloc:*alloc failed",
        "A driver asked for more contiguous memory than is free; the size is in pages of 4 KiB.",
        "Raise the kernel parameter cma= if a GPU line follows.";
    Cause Error Fatal "Bootstrap HS ACR failed",
        "The GPU did not accept its signed firmware.",
        FIRMWARE;
    Detail Error Fatal "LSF Load failed",
        "The power-management unit (PMU) did not load the firmware of another unit.",
        FIRMWARE;
    Detail Error Fatal "Unable to recover GR falcon",
        "The context-switch firmware did not start.",
        FIRMWARE;
    Cause Error Fatal "FBQ last received queue element not processed",
        "The power-management unit (PMU) does not take commands.",
        FIRMWARE;
    Detail Error Fatal "fb-queue element in use map",
        "A command queue of the PMU is full or corrupt.",
        ABOVE;
    Detail Error Fatal "falcon id-*queue id-*failed",
        "A command could not be put into a queue of the PMU.",
        ABOVE;
    Detail Error Fatal "fail to write cmd to queue",
        "A command could not be put into a queue of the PMU.",
        ABOVE;
    Detail Error Fatal "Failed to execute RPC",
        "The PMU did not execute a command.",
        ABOVE;
    Cause Error Fatal ">= num_gpu_instances",
        "A program used the GPU before its start had succeeded.",
        "See the first failed initialization above.";
    Alone Harmless None "Err inj callback registration failed",
        "The driver could not register for injected errors, which only tests of the safety processor use.",
        "";
    Alone Harmless None "tegra-hsierrrptinj: Callback",
        "A second registration for injected errors, which only tests of the safety processor use.",
        "";
    Alone Harmless None "UBSAN:*netlist",
        "This kernel checks the bounds of arrays, and the driver declares arrays of variable length with one element.",
        "";
    Detail Error Mmu "nvgpu_get_pte",
        "The page tables have no entry for the address of the fault.",
        ABOVE;
    Alone Information None "syncpt_unit_base",
        "Start of the driver: where the GPU sees the syncpoints.",
        "";
    Alone Information None "init_hal:*chip=",
        "Start of the driver: the chip.",
        "";
    Alone Information None "railgate is ",
        "The GPU's power gating was turned on or off through sysfs, for example by nvpmodel or jetson_clocks.",
        "";
    Alone Information None "loading out-of-tree module",
        "A driver of the board was loaded.",
        "";
    Alone Information None "nvmap_page_pool_init",
        "Start of nvmap: size of its pool of pages.",
        "";
    Alone Information None "nvmap_background_zero_thread",
        "Start of nvmap: the thread that zeroes freed pages.",
        "";
    Alone Information None "nvmap_heap_init",
        "Start of nvmap: a carveout of memory.",
        "";
    Alone Information None "host1x*initialized",
        "The syncpoint unit was started.",
        "";
    Alone Warning None "devfreq 17000000*Couldn't update",
        "The governor of the GPU's frequency lost count of its statistics. Work is not affected.",
        "Nothing, unless the frequency stays wrong.";
    Alone Warning None "cdma_handle_timeout",
        "A client of the syncpoint unit (camera, video, vision) made no progress; the GPU is none of them.",
        "See the program that uses the client named in the line.";
    Detail Information None "---- syncpts ----",
        "Start of the list of syncpoints after a wait that is stuck.",
        "";
    Detail Information None "id *min *max *refs ",
        "A syncpoint: its value (min), the value after all submitted work (max), and its owner.",
        "";
    Alone Warning None "arm-smmu*context fault",
        "A device accessed an address that the system MMU does not map; cbfrsynra identifies the device.",
        "Look for the driver's own lines around it; the GPU reports its faults itself.";
    Cause Error Unknown "pmu*[ERR]",
        "The driver's code for the power-management unit (PMU) reports an error.",
        UNIT;
    Cause Error Unknown "acr*[ERR]",
        "The driver's code for signed firmware reports an error.",
        FIRMWARE;
    Cause Error Unknown "falcon*[ERR]",
        "The driver's code for the GPU's microcontrollers reports an error.",
        FIRMWARE;
    Cause Error Unknown "netlist*[ERR]",
        "The driver could not read the firmware's table of registers.",
        FIRMWARE;
    Cause Error Unknown "firmware*[ERR]",
        "A firmware file of the GPU is missing or not valid.",
        "Install the firmware of the driver's release (/lib/firmware/ga10b).";
    Cause Error Unknown "clk*[ERR]",
        "The driver's code for clocks reports an error.",
        "Check the power mode (nvpmodel) and the device tree.";
    Cause Error Unknown "therm*[ERR]",
        "The driver's code for temperature reports an error.",
        "Check the cooling and the device tree.";
    Cause Error Unknown "power*[ERR]",
        "The driver's code for power reports an error.",
        UNIT;
    Cause Error Unknown "priv_ring*[ERR]",
        "A unit of the GPU did not respond to a register access.",
        "Reboot. If this happens again, check power supply and temperature.";
    Cause Error Unknown "ltc*[ERR]",
        "The driver's code for the L2 cache reports an error.",
        UNIT;
    Cause Error Unknown "fuse*[ERR]",
        "The driver could not read the chip's fuses.",
        "Check that the kernel and the device tree are for this module.";
}
