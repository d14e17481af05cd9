//! Blocking copies of memory by address.

use gpu_hal::{FileAccess, volatile};

use crate::device::Device;
use crate::error::{RangeError, Result};
use crate::limits::DEFAULT_TIMEOUT;

impl Device {
    /// Waits for the work that is known to use the allocation at a GPU address, then copies bytes from there.
    ///
    /// # Errors
    ///
    /// [`RangeError::NoMemory`] if the address is in no allocation of the device; [`RangeError::Memory`] if the bytes
    /// do not lie in one; the errors of [`Buffer::wait`](crate::Buffer::wait).
    ///
    /// # Safety
    ///
    /// No work that the device does not know to use the allocation writes the bytes meanwhile: a launch by address
    /// ([`Queue::launch_raw`](crate::Queue::launch_raw)) has ended. No exclusive reference to them exists.
    pub unsafe fn read_raw(&self, source: u64, target: &mut [u8]) -> Result<()> {
        if target.is_empty() {
            return Ok(());
        }
        let heap = self.shared().heap();
        let bytes = target.len() as u64;
        let memory = heap.find(source, bytes)?.ok_or(RangeError::NoMemory { address: source })?;
        heap.wait_for(&memory.uses, DEFAULT_TIMEOUT)?;
        let _access = memory.access_cpu(FileAccess::ReadOnly)?;
        if heap.read_out(memory.purpose(), source, target) {
            return Ok(());
        }
        // SAFETY: the bytes lie in the block, which `memory` keeps mapped. `target` is ordinary memory.
        unsafe { volatile::load(memory.map()?.as_ptr().add((source - memory.gpu_va()) as usize), target) };
        Ok(())
    }

    /// Waits for the work that is known to use the allocation at a GPU address, then copies bytes there.
    ///
    /// # Errors
    ///
    /// As [`Device::read_raw`].
    ///
    /// # Safety
    ///
    /// As for [`Device::read_raw`]; the unknown work does not read the bytes either, and no reference to them exists.
    pub unsafe fn write_raw(&self, source: &[u8], target: u64) -> Result<()> {
        if source.is_empty() {
            return Ok(());
        }
        let heap = self.shared().heap();
        let memory =
            heap.find(target, source.len() as u64)?.ok_or(RangeError::NoMemory { address: target })?;
        if !memory.access().is_writable() {
            return Err(RangeError::ReadOnly { address: target }.into());
        }
        heap.wait_for(&memory.uses, DEFAULT_TIMEOUT)?;
        let _access = memory.access_cpu(FileAccess::ReadWrite)?;
        if let Some(observer) = heap.observer() {
            observer.written(target, source.len());
        }
        if heap.write_in(memory.purpose(), target, source) {
            return Ok(());
        }
        // SAFETY: as in `read_raw`, with the roles exchanged.
        unsafe { volatile::store(memory.map()?.as_ptr().add((target - memory.gpu_va()) as usize), source) };
        Ok(())
    }
}
