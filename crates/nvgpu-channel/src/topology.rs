//! Units of the chip and their locations.
//!
//! Chips of the same product differ: defective units are fused off, and a power mode may disable more.
//! Therefore all values come from the driver. On ga10b, a GPC has up to four TPCs, and a TPC has two SMs
//! (`hal_ga10b_litter.c`).

use nvgpu_sys::ctrl;

use crate::error::{self, Error, NODE};
use crate::gpu::Gpu;

/// Maximum number of GPCs and FBPs: their masks have 32 bits.
const MAX_UNITS: usize = 32;
/// Maximum number of listed engines (the driver's table is shorter).
const MAX_ENGINES: usize = 32;

/// Kind of an engine.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let gpu = nvgpu_channel::Gpu::open(&door)?;
/// use nvgpu_channel::EngineKind;
///
/// assert!(gpu.engines()?.iter().any(|engine| engine.kind == EngineKind::Graphics));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// Graphics and compute.
    Graphics,
    /// Copy engine on the runlist of the graphics engine.
    GraphicsCopy,
    /// Copy engine with its own runlist.
    AsyncCopy,
    /// Video encoder.
    VideoEncoder,
    /// Optical flow.
    OpticalFlow,
    /// Video decoder.
    VideoDecoder,
    /// JPEG.
    Jpeg,
    /// Unknown engine id.
    Unknown(u32),
}

impl EngineKind {
    fn from_raw(id: u32) -> Self {
        match id {
            ctrl::ENGINE_GR => Self::Graphics,
            ctrl::ENGINE_GR_COPY => Self::GraphicsCopy,
            ctrl::ENGINE_ASYNC_COPY => Self::AsyncCopy,
            ctrl::ENGINE_NVENC => Self::VideoEncoder,
            ctrl::ENGINE_OFA => Self::OpticalFlow,
            ctrl::ENGINE_NVDEC => Self::VideoDecoder,
            ctrl::ENGINE_NVJPG => Self::Jpeg,
            other => Self::Unknown(other),
        }
    }
}

/// One engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Kind of the engine.
    pub kind: EngineKind,
    /// Instance among engines of the same kind.
    pub instance: u32,
    /// Its runlist.
    pub runlist: i32,
}

/// Location of an SM. Its index in [`Gpu::sm_positions`] is the SM number for
/// [`crate::Tsg::sm_error_state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmPosition {
    /// Logical GPC.
    pub gpc: u8,
    /// Virtual GPC.
    pub virtual_gpc: u8,
    /// TPC within the GPC.
    pub tpc_in_gpc: u8,
    /// TPC within the GPU, in the order in which the driver ranks TPCs.
    pub tpc: u8,
    /// SM within the TPC.
    pub sm_in_tpc: u8,
}

impl Gpu {
    /// Returns the engines and their runlists.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn engines(&self) -> Result<Vec<Engine>, Error> {
        let mut items = [ctrl::EngineInfoItem::default(); MAX_ENGINES];
        let count = ctrl::get_engine_info(self.ctrl(), &mut items)
            .map_err(error::call(ctrl::GET_ENGINE_INFO.name(), NODE))?;
        let engine = |item: &ctrl::EngineInfoItem| Engine {
            kind: EngineKind::from_raw(item.engine_id),
            instance: item.engine_instance,
            runlist: item.runlist_id,
        };
        Ok(items[..count.min(MAX_ENGINES)].iter().map(engine).collect())
    }

    /// Returns the masks of TPCs: one per GPC position, 0 if the GPC is absent.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn tpc_masks(&self) -> Result<Vec<u32>, Error> {
        let mut masks = [0; MAX_UNITS];
        let count = ctrl::get_tpc_masks(self.ctrl(), &mut masks)
            .map_err(error::call(ctrl::GET_TPC_MASKS.name(), NODE))?;
        Ok(masks[..count.min(MAX_UNITS)].to_vec())
    }

    /// Returns the masks of L2 slices: one per FBP.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn l2_slice_masks(&self) -> Result<Vec<u32>, Error> {
        let mut masks = [0; MAX_UNITS];
        let count = ctrl::get_fbp_l2_masks(self.ctrl(), &mut masks)
            .map_err(error::call(ctrl::GET_FBP_L2_MASKS.name(), NODE))?;
        Ok(masks[..count.min(MAX_UNITS)].to_vec())
    }

    /// Returns the location of each SM; [`crate::Characteristics::sm_count`] elements.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn sm_positions(&self) -> Result<Vec<SmPosition>, Error> {
        // CAST: a u32 fits a usize on every supported target.
        let mut entries = vec![ctrl::VsmsMappingEntry::default(); self.characteristics().sm_count() as usize];
        let count = ctrl::get_vsms_mapping(self.ctrl(), &mut entries)
            .map_err(error::call(ctrl::VSMS_MAPPING.name(), NODE))?;
        let position = |entry: &ctrl::VsmsMappingEntry| SmPosition {
            gpc: entry.gpc_logical_index,
            virtual_gpc: entry.gpc_virtual_index,
            tpc_in_gpc: entry.tpc_local_logical_index,
            tpc: entry.tpc_global_logical_index,
            sm_in_tpc: entry.sm_local_id,
        };
        Ok(entries[..count].iter().map(position).collect())
    }

    /// Returns physical position and logical index of each GPC present.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn gpc_indices(&self) -> Result<Vec<(u32, u32)>, Error> {
        // CAST: a u32 fits a usize on every supported target.
        let count = self.characteristics().gpc_count() as usize;
        let (mut physical, mut logical) = (vec![0; count], vec![0; count]);
        ctrl::get_gpc_physical_map(self.ctrl(), &mut physical)
            .map_err(error::call(ctrl::GET_GPC_LOCAL_TO_PHYSICAL_MAP.name(), NODE))?;
        ctrl::get_gpc_logical_map(self.ctrl(), &mut logical)
            .map_err(error::call(ctrl::GET_GPC_LOCAL_TO_LOGICAL_MAP.name(), NODE))?;
        Ok(physical.into_iter().zip(logical).collect())
    }

    /// Returns the size of a depth-culling context in bytes; only used by graphics.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `ENODEV` on a GPU without depth culling.
    pub fn zcull_context_bytes(&self) -> Result<u32, Error> {
        let mut argument = ctrl::ZcullGetCtxSize::default();
        ctrl::ZCULL_GET_CTX_SIZE
            .send(self.ctrl(), &mut argument)
            .map_err(error::call(ctrl::ZCULL_GET_CTX_SIZE.name(), NODE))?;
        Ok(argument.size)
    }

    /// Returns the free video memory in bytes; `None` on a GPU without video memory, such as an Orin's,
    /// which uses system memory ([`nvmap::Nvmap::system_memory`]).
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn video_memory_free(&self) -> Result<Option<u64>, Error> {
        use kernel_door::Errno;
        let mut argument = ctrl::GetMemoryState::default();
        match ctrl::GET_MEMORY_STATE.send(self.ctrl(), &mut argument) {
            Ok(_) => Ok(Some(argument.total_free_bytes)),
            // No video memory, or a driver built without support for it.
            Err(Errno::NOSYS | Errno::NOTTY) => Ok(None),
            Err(errno) => Err(error::call(ctrl::GET_MEMORY_STATE.name(), NODE)(errno)),
        }
    }
}
