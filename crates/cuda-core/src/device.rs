//! What a GPU reports about itself: name, memory and attributes.

use gpu_hal::chip::{self, MAX_BLOCK, MAX_BLOCK_THREADS, MAX_GRID, WARP};
use tegra_hcq::{DeviceKind, Properties};

use crate::code::{Code, Failure, Result};
use crate::driver::Gpu;

/// The first number that is no device attribute in CUDA 13.
const ATTRIBUTES: u32 = 162;
/// Size of constant memory in bytes, on every generation (CUDA C++ Programming Guide, "Technical Specifications per
/// Compute Capability").
const CONSTANT_BYTES: u32 = 64 << 10;

/// A number among those that the driver reports by name; 0 without.
fn driver_number(properties: &Properties, name: &str) -> i64 {
    properties.driver.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
}

impl Gpu {
    /// Its name, as `cuDeviceGetName` reports it.
    ///
    /// # Errors
    ///
    /// If the GPU cannot be opened.
    pub fn title(&self) -> Result<String> {
        let device = self.device()?;
        Ok(match device.info().name().kind {
            DeviceKind::Sim => "Orin (software)".to_owned(),
            DeviceKind::Nvgpu => "Orin".to_owned(),
            _ => device.info().chip.clone(),
        })
    }

    /// PCI domain, bus and slot; zeros for an Orin's GPU.
    ///
    /// # Errors
    ///
    /// If the GPU cannot be opened.
    pub fn pci(&self) -> Result<(u32, u32, u32)> {
        let device = self.device()?;
        let number = |name| u32::try_from(driver_number(device.info(), name)).unwrap_or(0);
        Ok((number("pci_domain"), number("pci_bus"), number("pci_slot")))
    }

    /// Free and total memory in bytes.
    ///
    /// # Errors
    ///
    /// If the GPU cannot be opened or does not report its memory.
    pub fn memory_info(&self) -> Result<(u64, u64)> {
        self.device()?
            .memory()
            .map(|figures| (figures.available, figures.total))
            .ok_or_else(|| Failure::new(Code::NotSupported, "the driver does not report its memory"))
    }

    /// SM version, major and minor.
    ///
    /// # Errors
    ///
    /// If the GPU cannot be opened.
    pub fn sm_version(&self) -> Result<(u32, u32)> {
        Ok(self.device()?.info().sm_version)
    }

    /// An attribute (`CUdevice_attribute`). Those of what the library does not support are 0.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if there is no such attribute.
    pub fn attribute(&self, attribute: u32) -> Result<i32> {
        if !(1..ATTRIBUTES).contains(&attribute) {
            return Err(Failure::invalid(format!("there is no device attribute {attribute}")));
        }
        let device = self.device()?;
        let properties: &Properties = device.info();
        let unified = properties.unified_memory;
        let chip = chip::of(properties.sm_version)
            .ok_or_else(|| Failure::new(Code::InvalidDevice, properties.tried()))?;
        let (sm, shared) = (&chip.sm, &chip.shared);
        let most_shared = shared.largest() - shared.reserved;
        let yes_if = u32::from;
        let value: u32 = match attribute {
            1 => MAX_BLOCK_THREADS,
            2..=4 => MAX_BLOCK[attribute as usize - 2],
            5..=7 => MAX_GRID[attribute as usize - 5],
            8 => 48 << 10,
            9 => CONSTANT_BYTES,
            10 => WARP,
            // MAX_PITCH: what CUDA reports everywhere.
            11 => i32::MAX.cast_unsigned(),
            12 | 82 => sm.registers,
            // CLOCK_RATE in kHz.
            13 => u32::try_from(properties.max_clock_hz / 1000).unwrap_or(0),
            14 | 30 => 512,
            51 => 32,
            21..=29 | 42..=49 | 52..=74 | 77 => texture_limit(attribute),
            // GPU_OVERLAP, CONCURRENT_KERNELS, UNIFIED_ADDRESSING, CAN_MAP_HOST_MEMORY, stream priorities, L1 caches,
            // managed memory (also while kernels run: it is coherent), preemption, registered host memory, pools,
            // also of host memory, events of other processes, waits and writes by streams in all forms.
            15 | 31 | 41 | 19 | 78 | 79 | 80 | 83 | 89 | 90 | 92..=94 | 99 | 115 | 122 | 123 | 125 | 144 => 1,
            16 => properties.sm_count,
            // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, the same of pools.
            102 | 103 | 119 => 1,
            // INTEGRATED.
            18 => yes_if(unified),
            33 | 34 | 50 => {
                let (domain, bus, slot) = self.pci()?;
                [bus, slot, domain][[33, 34, 50].iter().position(|&other| other == attribute).unwrap_or(0)]
            }
            // MEMORY_CLOCK_RATE in kHz and GLOBAL_MEMORY_BUS_WIDTH in bits, as CUDA reports them on an AGX Orin;
            // unknown on cards.
            36 if unified => 1_300_000,
            37 if unified => 256,
            38 => u32::try_from(properties.l2_bytes).unwrap_or(u32::MAX),
            39 => properties.warps_per_sm * WARP,
            40 => 2,
            75 => properties.sm_version.0,
            76 => properties.sm_version.1,
            81 => shared.largest(),
            // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO.
            87 => {
                if matches!(properties.sm_version, (8 | 9, 0)) {
                    2
                } else {
                    64
                }
            }
            // COOPERATIVE_LAUNCH.
            95 => 1,
            // CLUSTER_LAUNCH.
            120 => yes_if(chip.bank0.value.cluster.is_some()),
            97 => most_shared,
            106 => sm.blocks,
            111 => shared.reserved,
            // NUMA_ID, HOST_NUMA_ID: none.
            131 | 134 => u32::MAX,
            _ => 0,
        };
        Ok(value.cast_signed())
    }
}

/// Limits of textures and surfaces, which are those of CUDA on every GPU of SM 8.x.
fn texture_limit(attribute: u32) -> u32 {
    match attribute {
        // Textures of one dimension and two, surfaces likewise; linear memory.
        21 | 22 | 55 | 56 => 1 << 17,
        23 | 57 => 1 << 16,
        69 => 1 << 28,
        70 => 1 << 17,
        71 => 65_000,
        72 => 2_097_120,
        // Three dimensions, and the larger ones where one is.
        24..=26 | 58..=60 => 1 << 14,
        47 | 48 => 1 << 13,
        // Numbers of layers.
        29 | 43 | 62 | 65 => 2048,
        54 | 68 => 2046,
        // CAN_TEX2D_GATHER.
        44 => 1,
        _ => 1 << 15,
    }
}
