//! The GPU: control node, properties, doorbell page.

use std::sync::Arc;

use kernel_door::{Door, DoorFd, OpenFlags};
use nvgpu_sys::{ctrl, paths};
use nvmap::Nvmap;
use parking_lot::Mutex;

use crate::characteristics::{self, Characteristics, SMS_PER_TPC};
use crate::doorbell::Doorbell;
use crate::error::{self, Error, NODE};

/// The GPU of a Jetson; creates address spaces and TSGs.
///
/// Clones share the descriptors, which close when the last clone and everything created from it are
/// dropped.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use nvgpu_channel::Gpu;
/// use kernel_door::Door;
///
/// // On a Jetson: Arc::new(kernel_door::LinuxDoor).
/// let door: Arc<dyn Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// let gpu = Gpu::open(&door)?;
/// assert_eq!(gpu.characteristics().chip_name(), "ga10b");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Gpu {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    // Drop order: the doorbell page is a mapping of `ctrl`.
    doorbell: Mutex<Option<Arc<Doorbell>>>,
    ctrl: DoorFd,
    nvmap: Nvmap,
    characteristics: Characteristics,
}

impl Gpu {
    /// Opens the control node and nvmap through `door`, powers on the GPU (0.1 s if it was off) and
    /// checks that this crate supports it.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] and [`Error::Memory`] if a node does not open; [`Error::UnknownLayout`],
    /// [`Error::UnknownClass`], [`Error::MissingFeature`], [`Error::DriverTooOld`] and [`Error::NarrowAddresses`] if
    /// the GPU or its driver is not supported; [`Error::Call`] otherwise.
    pub fn open(door: &Arc<dyn Door>) -> Result<Self, Error> {
        let nvmap = Nvmap::open(door)?;
        let flags = OpenFlags::READ_WRITE | OpenFlags::CLOSE_ON_EXEC;
        let ctrl =
            DoorFd::open(door, paths::CTRL, flags).map_err(|errno| Error::Open { path: NODE, errno })?;
        let answer =
            ctrl::ask_characteristics(&ctrl).map_err(error::call(ctrl::GET_CHARACTERISTICS.name(), NODE))?;
        let (raw, interface) = characteristics::decode(&answer)?;
        let mut characteristics = Characteristics::check(raw, interface)?;
        if let Some(count) = count_sms(&ctrl) {
            characteristics.set_sm_count(count);
        }
        tracing::debug!(
            door = door.name(),
            chip = characteristics.chip_name(),
            interface = %interface,
            sms = characteristics.sm_count(),
            "GPU opened"
        );
        Ok(Self { shared: Arc::new(Shared { doorbell: Mutex::new(None), ctrl, nvmap, characteristics }) })
    }

    /// The characteristics of the GPU and its driver.
    pub fn characteristics(&self) -> &Characteristics {
        &self.shared.characteristics
    }

    /// The memory allocator.
    pub fn nvmap(&self) -> &Nvmap {
        &self.shared.nvmap
    }

    /// The door that the GPU was opened through.
    pub fn door(&self) -> &Arc<dyn Door> {
        self.shared.ctrl.door()
    }

    /// Returns the GPU time in nanoseconds, with a resolution of 32 ns: the clock of semaphore timestamps.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn time_ns(&self) -> Result<u64, Error> {
        let mut argument = ctrl::GetGpuTime::default();
        ctrl::GET_GPU_TIME
            .send(&self.shared.ctrl, &mut argument)
            .map_err(error::call(ctrl::GET_GPU_TIME.name(), NODE))?;
        Ok(argument.gpu_timestamp)
    }

    /// Writes back the GPU's L2 cache and, with `invalidate`, invalidates it, so that the CPU and other
    /// devices see writes of the GPU, and the GPU sees theirs. Only mappings with
    /// [`crate::MapOptions::gpu_cached`] need it.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn flush_l2(&self, invalidate: bool) -> Result<(), Error> {
        let mut operations = ctrl::FlushL2Operations::L2_FLUSH;
        operations.set(ctrl::FlushL2Operations::L2_INVALIDATE, invalidate);
        let mut argument = ctrl::FlushL2 { operations: operations.bits(), reserved: [0; 4] };
        ctrl::FLUSH_L2
            .send(&self.shared.ctrl, &mut argument)
            .map(drop)
            .map_err(error::call(ctrl::FLUSH_L2.name(), NODE))
    }

    /// The control node.
    pub(crate) fn ctrl(&self) -> &DoorFd {
        &self.shared.ctrl
    }

    /// Returns the doorbell page; the first call maps it. The kernel allows one mapping per open control
    /// node, so all channels share it.
    pub(crate) fn doorbell(&self) -> Result<Arc<Doorbell>, Error> {
        // The option is valid even after a panic of a lock holder.
        let mut page = self.shared.doorbell.lock();
        if let Some(doorbell) = page.as_ref() {
            return Ok(Arc::clone(doorbell));
        }
        let doorbell = Arc::new(Doorbell::map(&self.shared.ctrl)?);
        *page = Some(Arc::clone(&doorbell));
        Ok(doorbell)
    }
}

/// Returns the number of SMs from NUM_VSMS or the TPC masks; see [`Characteristics::sm_count`].
fn count_sms(ctrl: &DoorFd) -> Option<u32> {
    let mut vsms = ctrl::NumVsms::default();
    if ctrl::NUM_VSMS.send(ctrl, &mut vsms).is_ok() && vsms.num_vsms != 0 {
        return Some(vsms.num_vsms);
    }
    // A GPU has at most 32 GPCs: `gpc_mask` is 32 bits.
    let mut masks = [0_u32; 32];
    let count = ctrl::get_tpc_masks(ctrl, &mut masks).ok()?.min(masks.len());
    let tpcs: u32 = masks[..count].iter().map(|mask| mask.count_ones()).sum();
    (tpcs != 0).then_some(tpcs * SMS_PER_TPC)
}
