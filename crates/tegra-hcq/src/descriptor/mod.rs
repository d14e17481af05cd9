//! Launch descriptors (QMD) and constant bank 0.
//!
//! The compute scheduler reads a descriptor from memory: which code to run, on what grid, with which resources.
//! Constant bank 0 begins with words that NVIDIA's compiler expects of the driver; the parameters follow. What the
//! chips do differently is in the chip table ([`gpu_hal::chip`]); this module encodes it for both versions of the
//! descriptor.

use ampere_cmd::qmd::{Qmd, v3_0, v4_0};
use gpu_hal::chip::{Chain, Chip, QmdVersion};

use crate::encodings::Encodings;
use crate::error::Result;
use crate::grid::Dim3;

mod bank0;
mod end;
mod layout;

pub(crate) use bank0::{bank0, put_shape};
use end::{ChainPatch, chain_patch};
pub(crate) use end::{Link, Seen, read};
use layout::Layout;

/// Alignment of a descriptor, in bytes.
pub(crate) const ALIGN: u64 = ampere_cmd::qmd::ALIGNMENT;

/// Shared memory of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedMemory {
    /// Dynamic shared memory of a block in bytes.
    pub(crate) dynamic_bytes: u32,
    /// Shared memory of a block in bytes, as in the launch descriptor: static, dynamic and reserved.
    pub(crate) bytes: u32,
    /// Code of the smallest configuration of the SM that holds one block.
    pub(crate) config: u32,
    /// Code of the configuration that holds as many blocks as the SM's other resources allow.
    pub(crate) target: u32,
}

/// Grid, block and shared memory of a launch, checked against kernel and chip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared: SharedMemory,
    /// Number of blocks that an SM holds, for a grid of at most one block per SM; 0 for larger grids or if unknown.
    pub(crate) empty_sm_slots: u32,
}

/// How a grid overlaps its neighbours in a chain: the numbers of latches. A latch is closed while the grid that arrives
/// at it runs, and until that grid's stores are visible. Chips without latches ignore them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latches {
    /// The latch at which the grid arrives. The next grid begins when all blocks have ended or allow it
    /// (`griddepcontrol.launch_dependents`). Without one, it begins when the grid has ended.
    pub(crate) arrive: Option<u32>,
    /// The latch for which the grid's `griddepcontrol.wait` waits. Without one, the instruction does nothing.
    pub(crate) wait: Option<u32>,
}

/// The parts of a kernel that its descriptor contains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code<'a> {
    pub(crate) kernel: &'a cubin::Kernel,
    pub(crate) code_va: u64,
    pub(crate) image_va: u64,
    pub(crate) local_bytes: u32,
    pub(crate) bank0_bytes: usize,
    /// The SM version as two digits of 4 bits.
    pub(crate) sass_version: u64,
}

/// The descriptor of a kernel, and how it is chained.
#[derive(Clone, Copy, Debug)]
struct Template<V: Layout> {
    qmd: Qmd<V>,
    chain: ChainPatch<V>,
}

/// A template in the version of the chip.
#[derive(Clone, Copy, Debug)]
enum Versioned {
    V3_0(Template<v3_0::Layout>),
    V4_0(Template<v4_0::Layout>),
}

/// The launch descriptor of a kernel, without what differs from launch to launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    chip: &'static Chip,
    /// Code of the largest configuration of shared memory for launches that need no more.
    usual_config: u32,
    template: Versioned,
}

impl Descriptor {
    /// Encodes what all launches of a kernel have in common.
    pub(crate) fn template(encodings: &Encodings, code: &Code<'_>) -> Result<Self> {
        let mut this = Self::empty(encodings)?;
        match &mut this.template {
            Versioned::V3_0(template) => v3_0::Layout::set_basics(&mut template.qmd, code)?,
            Versioned::V4_0(template) => v4_0::Layout::set_basics(&mut template.qmd, code)?,
        }
        Ok(this)
    }

    /// A descriptor with only what depends on the chip.
    fn empty(encodings: &Encodings) -> Result<Self> {
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

    /// The chip that the descriptor is for.
    #[inline]
    pub(crate) fn chip(&self) -> &'static Chip {
        self.chip
    }

    /// Length of the descriptor in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.chip.descriptor.value.words() as u64 * 4
    }

    /// Passes the words of the descriptor of a launch to `store`. Constant bank 0 of the launch is at `bank_va`.
    /// Returns how the descriptor is chained to another.
    #[inline]
    pub(crate) fn launch(
        &self,
        shape: &Shape,
        latches: Latches,
        bank_va: u64,
        store: impl FnOnce(&[u32]),
    ) -> Result<Link> {
        match &self.template {
            Versioned::V3_0(template) => self.launch_in(template, shape, latches, bank_va, store),
            Versioned::V4_0(template) => self.launch_in(template, shape, latches, bank_va, store),
        }
    }

    #[inline]
    fn launch_in<V: Layout>(
        &self,
        template: &Template<V>,
        shape: &Shape,
        latches: Latches,
        bank_va: u64,
        store: impl FnOnce(&[u32]),
    ) -> Result<Link> {
        let mut qmd = template.qmd;
        let Shape { grid, block, shared, .. } = shape;
        for (field, value) in V::GRID.into_iter().zip([grid.x, grid.y, grid.z]) {
            qmd.set(field, value)?;
        }
        for (field, value) in V::BLOCK.into_iter().zip([block.x, block.y, block.z]) {
            qmd.set(field, value)?;
        }
        qmd.set(V::SHARED, shared.bytes)?;
        let [min, target, max] = V::CONFIG;
        qmd.set(min, shared.config)?;
        qmd.set(target, shared.target)?;
        qmd.set(max, shared.target.max(self.usual_config))?;
        if self.chip.empty_sm_slots.value {
            qmd.set(V::EMPTY_SM_SLOTS, shape.empty_sm_slots)?;
        }
        let [lower, upper] = V::BANK0;
        qmd.set_address(lower, upper, bank_va)?;
        if let Some(fields) = V::LATCHES {
            fields.set(&mut qmd, latches)?;
        }
        let words = qmd.as_words();
        store(words);
        Ok(Link::of(self.chip, &template.chain, words))
    }

    /// Makes the grid of the descriptor at `qmd_at` release a semaphore; see [`end::store_release`].
    ///
    /// # Errors
    ///
    /// As [`end::store_release`].
    ///
    /// # Safety
    ///
    /// As [`Link::store`], for a descriptor that [`Descriptor::launch`] has encoded.
    #[inline]
    pub(crate) unsafe fn store_release(&self, va: u64, value: u64, qmd_at: *mut u8) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { end::store_release(self.chip, va, value, qmd_at) }
    }

    /// Makes the grid of the descriptor at `qmd_at` write the time when it has ended; see [`end::store_stamp`].
    ///
    /// # Errors
    ///
    /// As [`end::store_release`].
    ///
    /// # Safety
    ///
    /// As [`Descriptor::store_release`].
    pub(crate) unsafe fn store_stamp(&self, va: u64, qmd_at: *mut u8) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { end::store_stamp(self.chip, va, qmd_at) }
    }
}

impl<V: Layout> Template<V> {
    fn new(chip: &'static Chip, chain: Chain) -> Result<Self> {
        let mut qmd = Qmd::new();
        if chip.bank0_prefetch.value
            && let Some((field, value)) = V::BANK0_PREFETCH
        {
            qmd.set(field, value)?;
        }
        Ok(Self { qmd, chain: chain_patch::<V>(chain)? })
    }
}

#[cfg(test)]
mod tests;
