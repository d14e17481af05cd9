//! Templates of launch descriptors (QMD) and constant bank 0: what all launches of a kernel have in common.
//!
//! The compute scheduler reads a descriptor from memory: which code to run, on what grid, with which resources.
//! Constant bank 0 begins with words that NVIDIA's compiler expects of the driver; the parameters follow. Both
//! templates are made when a program is loaded, and [`crate::launch::record`] completes them for each launch. What the
//! chips do differently is in the chip table ([`gpu_hal::chip`]); this module encodes it for both versions of the
//! descriptor.

use ampere_cmd::qmd::{Field, Patch, Qmd, QmdV3_0, QmdV4_0, v3_0, v4_0};
use ampere_cmd::words::join;
use gpu_hal::Properties;
use gpu_hal::chip::{Chain, Chip, ClusterWords, QmdVersion};

use crate::encodings::Encodings;
use crate::error::Result;
use crate::limits::Dim3;
use layout::Layout;

pub(crate) mod layout;

/// Alignment of a descriptor, in bytes.
pub(crate) const ALIGN: u64 = ampere_cmd::qmd::ALIGNMENT;
/// Words of a chain next to the pointer and the latch: flags of the next descriptor, barrier, flag of the latch.
pub(crate) const CHAIN_WORDS: usize = 3;

/// How a grid overlaps its neighbours in a chain: the numbers of latches. A latch is closed while the grid that arrives
/// at it runs, and until that grid's stores are visible. Chips without latches ignore them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latches {
    /// The latch at which the grid arrives if another is chained to it, which then begins when all blocks have ended or
    /// allow it (`griddepcontrol.launch_dependents`). Without one, it begins when the grid has ended.
    pub(crate) arrive: Option<u32>,
    /// The latch for which the grid's `griddepcontrol.wait` waits. Without one, the instruction does nothing.
    pub(crate) wait: Option<u32>,
    /// Whether the grid begins at the kernel's gate, which has the instruction.
    pub(crate) at_gate: bool,
}

/// The parts of a kernel that its descriptor contains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code<'a> {
    pub(crate) kernel: &'a cubin::Kernel,
    pub(crate) code_va: u64,
    pub(crate) image_va: u64,
    /// Registers per thread, with those of functions that the program is linked with.
    pub(crate) registers: u32,
    pub(crate) local_bytes: u32,
    pub(crate) bank0_bytes: usize,
    /// The SM version as two digits of 4 bits.
    pub(crate) sass_version: u64,
}

/// The descriptor of a kernel in one version, and the fields that chain it, except the pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template<V: Layout> {
    pub(crate) qmd: Qmd<V>,
    pub(crate) chain: Patch<V, CHAIN_WORDS>,
    /// The chain of a grid that arrives at a latch; `chain` in versions without latches.
    pub(crate) latched_chain: Patch<V, CHAIN_WORDS>,
}

/// A template in the version of the chip.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Versioned {
    V3_0(Template<v3_0::Layout>),
    V4_0(Template<v4_0::Layout>),
}

/// The launch descriptor of a kernel, without what differs from launch to launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) chip: &'static Chip,
    /// Code of the largest configuration of shared memory for launches that need no more.
    pub(crate) usual_config: u32,
    pub(crate) template: Versioned,
}

impl Descriptor {
    /// Encodes what all launches of a kernel have in common.
    pub(crate) fn of(encodings: &Encodings, code: &Code<'_>) -> Result<Self> {
        let mut this = Self::empty(encodings)?;
        match &mut this.template {
            Versioned::V3_0(template) => v3_0::Layout::set_basics(&mut template.qmd, code)?,
            Versioned::V4_0(template) => v4_0::Layout::set_basics(&mut template.qmd, code)?,
        }
        Ok(this)
    }

    /// A descriptor with only what depends on the chip.
    pub(crate) fn empty(encodings: &Encodings) -> Result<Self> {
        let chip = encodings.chip();
        // Without chaining nothing is linked.
        let chain = encodings.chain.unwrap_or_else(|| chip.chain());
        let template = match chip.descriptor.value {
            QmdVersion::V3_0 => Versioned::V3_0(Template::new(chip, chain)?),
            QmdVersion::V4_0 => Versioned::V4_0(Template::new(chip, chain)?),
        };
        let usual_config = chip.shared.config_for(chip.shared.usual_kib * 1024).unwrap_or_default();
        Ok(Self { chip, usual_config, template })
    }

    /// Makes launches form clusters of some blocks. Returns whether the descriptor can say so.
    pub(crate) fn set_cluster(&mut self, cluster: [u32; 3]) -> Result<bool> {
        match &mut self.template {
            Versioned::V3_0(template) => template.set_cluster(cluster),
            Versioned::V4_0(template) => template.set_cluster(cluster),
        }
    }

    /// Length of the descriptor in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.chip.descriptor.value.words() as u64 * 4
    }
}

impl<V: Layout> Template<V> {
    fn new(chip: &Chip, chain: Chain) -> Result<Self> {
        let mut qmd = Qmd::new();
        if chip.bank0_prefetch.value
            && let Some((field, value)) = V::BANK0_PREFETCH
        {
            qmd.set(field, value)?;
        }
        let next = V::NEXT;
        let mut patch = Patch::new()
            .with(next.enable, 1)?
            .with(next.action, chain.action)?
            .with(next.prefetch, chain.prefetch.into())?;
        if let Some(barrier) = chain.barrier {
            patch = patch.with(V::BARRIER, barrier.membar)?;
            if let Some(chasing) = next.chasing {
                patch = patch.with(chasing, barrier.chasing.into())?;
            }
        }
        let latched_chain = match V::LATCHES {
            Some(fields) => fields.arrive(patch)?,
            None => patch,
        };
        Ok(Self { qmd, chain: patch, latched_chain })
    }

    fn set_cluster(&mut self, cluster: [u32; 3]) -> Result<bool> {
        let Some((kind, value, sizes)) = V::CLUSTERS else { return Ok(false) };
        self.qmd.set(kind, value)?;
        for (field, blocks) in sizes.into_iter().zip(cluster) {
            self.qmd.set(field, blocks)?;
        }
        Ok(true)
    }
}

/// Byte offsets of the driver words that are the same on all generations and for all launches of a kernel.
mod at {
    /// Generic address of the local window (u64).
    pub(super) const LOCAL_WINDOW: usize = 0x20;
    /// Initial stack pointer (u32).
    pub(super) const STACK_POINTER: usize = 0x28;
    /// Number of SMs (u32).
    pub(super) const SM_COUNT: usize = 0x10c;
    /// Reserved shared memory in bytes (u32): code subtracts it from the size of a block's shared memory.
    pub(super) const RESERVED_SHARED: usize = 0x114;
}

/// Returns constant bank 0 of at least `bytes` bytes, with the words that do not depend on the launch. Bank 3, the
/// `__constant__` variables, is at `constants_va`.
pub(crate) fn bank0(chip: &Chip, bytes: usize, constants_va: u64, properties: &Properties) -> Vec<u8> {
    let places = chip.bank0.value;
    let reserved = chip.shared.reserved;
    let mut bank = vec![0; bytes.max(places.end).next_multiple_of(16)];
    if let Some(at) = places.shared_window {
        put(&mut bank, at, &properties.shared_window.to_le_bytes());
    }
    put(&mut bank, at::LOCAL_WINDOW, &properties.local_window.to_le_bytes());
    put(&mut bank, at::STACK_POINTER, &chip.local.stack_pointer().to_le_bytes());
    put(&mut bank, at::SM_COUNT, &properties.sm_count.to_le_bytes());
    put(&mut bank, places.constants, &constants_va.to_le_bytes());
    put(&mut bank, at::RESERVED_SHARED, &reserved.to_le_bytes());
    if let Some(cluster) = places.cluster {
        put(&mut bank, cluster.reserved_shared_end, &reserved.to_le_bytes());
        // Each block is its own cluster.
        put_cluster(&mut bank, &cluster, [1; 3]);
    }
    bank
}

/// Writes the words about the size of a cluster. Code divides numbers of blocks by the extents along y and z with the
/// reciprocals, rounded towards zero.
pub(crate) fn put_cluster(bank: &mut [u8], places: &ClusterWords, cluster: [u32; 3]) {
    for (axis, blocks) in cluster.into_iter().enumerate() {
        put(bank, places.shape + 4 * axis, &blocks.to_le_bytes());
        // CAST: a cluster has at most 16 blocks.
        put(bank, places.reciprocals + 4 * axis, &(1.0 / blocks as f32).to_le_bytes());
    }
    put(bank, places.blocks, &cluster.iter().product::<u32>().to_le_bytes());
}

/// Writes bytes at an offset of a bank.
pub(crate) fn put(bank: &mut [u8], offset: usize, bytes: &[u8]) {
    bank[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// The fields of a descriptor that a fault report shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) code_va: u64,
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    /// Address of the next descriptor; `None` if the chain ends here.
    pub(crate) next: Option<u64>,
    /// Semaphore released at the end of the grid, and its value; `None` without a release.
    pub(crate) release: Option<(u64, u64)>,
}

/// Decodes the words of a descriptor; `None` if their number is not that of the chip's descriptors.
pub(crate) fn read(chip: &Chip, words: &[u32]) -> Option<Seen> {
    match chip.descriptor.value {
        QmdVersion::V4_0 => QmdV4_0::from_slice(words).map(|qmd| seen(&qmd)),
        QmdVersion::V3_0 => QmdV3_0::from_slice(words).map(|qmd| seen(&qmd)),
    }
}

fn seen<V: Layout>(qmd: &Qmd<V>) -> Seen {
    // CAST: no field has more than 32 bits.
    let dim = |fields: [Field<V>; 3]| Dim3::from(fields.map(|field| qmd.get(field) as u32));
    let [low, high] = V::CODE;
    let next = V::NEXT;
    let [enable, _, _, va_low, va_high, value_low, value_high] =
        V::RELEASE.read(qmd.as_words()).map(|value| value as u32);
    let clusters = dim(V::GRID);
    let grid = match V::CLUSTERS {
        Some((kind, value, sizes)) if qmd.get(kind) == value => {
            let cluster = dim(sizes);
            let blocks = |clusters: u32, size: u32| clusters.saturating_mul(size);
            let [x, y, z] =
                [blocks(clusters.x, cluster.x), blocks(clusters.y, cluster.y), blocks(clusters.z, cluster.z)];
            Dim3 { x, y, z }
        }
        _ => clusters,
    };
    Seen {
        code_va: qmd.address(low, high),
        grid,
        block: dim(V::BLOCK),
        next: (qmd.get(next.enable) != 0).then(|| ampere_cmd::qmd::pointed_va(qmd.get(next.pointer) as u32)),
        release: (enable != 0).then(|| (join(va_high, va_low), join(value_high, value_low))),
    }
}

#[cfg(test)]
mod tests {
    use gpu_hal::chip::{self, SM_9_0};

    use super::*;
    use crate::{Device, DeviceKind};

    #[test]
    fn each_block_on_hopper_is_its_own_cluster() {
        let device = Device::open(DeviceKind::Sim).unwrap();
        let bank = bank0(&SM_9_0, 0, 0, device.info());
        let word = |at: usize| u32::from_le_bytes(bank[at..at + 4].try_into().unwrap());
        let cluster = SM_9_0.bank0.value.cluster.unwrap();
        assert_eq!([0, 4, 8].map(|axis| word(cluster.shape + axis)), [1; 3]);
        assert_eq!((word(cluster.blocks), word(cluster.reciprocals)), (1, 1_f32.to_bits()));
        assert_eq!(word(cluster.reserved_shared_end), SM_9_0.shared.reserved);
    }

    #[test]
    fn products_with_the_reciprocals_are_quotients() {
        let places = SM_9_0.bank0.value.cluster.unwrap();
        for size in 1..=chip::MAX_CLUSTER {
            let mut bank = vec![0; SM_9_0.bank0.value.end];
            put_cluster(&mut bank, &places, [1, size, 1]);
            let at = places.reciprocals + 4;
            let reciprocal = f32::from_le_bytes(bank[at..at + 4].try_into().unwrap());
            // Code multiplies in 32-bit floats. CAST: a grid has at most 65,535 blocks along y and z.
            let quotient = |block: u32| (block as f32 * reciprocal) as u32;
            assert!((0..=0xffff).all(|block| quotient(block) == block / size), "{size}");
        }
    }
}
