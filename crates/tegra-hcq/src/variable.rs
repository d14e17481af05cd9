//! Variables of a program: `__device__` and `__constant__`, by name.
//!
//! Variables are stored in the program's image, after its code. A `__device__` variable is ordinary global memory; code
//! gets its address from constant bank 4 or from an instruction. A `__constant__` variable is part of constant bank 3,
//! which SMs read through a separate cache. Each launch invalidates the kernel's banks in that cache, so it sees all
//! earlier writes.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Range, RangeBounds};
use std::sync::Arc;

use crate::error::{RangeError, Result};
use crate::memory::{Pod, Slice, SliceMut, resolve};
use crate::program::Program;
use crate::program::code::ProgramCode;

/// A variable of a program as `len` elements of `T`. Keeps the program loaded.
///
/// All kernels of the program share the variable, on every queue. A launch from another thread during [`Variable::set`]
/// may see a mix of old and new elements.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
/// let program = tegra_hcq::Program::load(&device, cubin)?;
/// // This program has no `__device__` variables.
/// assert_eq!(program.variable_names().count(), 0);
/// assert!(program.variable::<f32>("gain").is_err());
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
pub struct Variable<T: Pod> {
    program: Arc<ProgramCode>,
    /// Offset in the image, in bytes.
    offset: usize,
    len: usize,
    constant: bool,
    managed: bool,
    _elements: PhantomData<T>,
}

impl Program {
    /// Names of the `__device__` and `__constant__` variables, sorted. Variables in C++ namespaces and static variables
    /// inside functions have mangled names.
    pub fn variable_names(&self) -> impl Iterator<Item = &str> {
        self.loaded().globals.iter().map(|global| global.name.as_str())
    }

    /// The variable named `name`, as elements of `T`: one for a plain variable, several for an array or if `T` is a
    /// part of the variable.
    ///
    /// ```
    /// # use tegra_hcq::{Device, DeviceKind, Program};
    /// # #[cfg(feature = "sim")]
    /// # fn main() -> tegra_hcq::Result<()> {
    /// # let device = Device::open(DeviceKind::Sim)?;
    /// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/globals.cubin"));
    /// let program = Program::load(&device, cubin)?;
    /// let taps = program.variable::<f32>("taps")?; // __constant__ float taps[5]
    /// assert_eq!(taps.get()?, [0.0625, 0.25, 0.375, 0.25, 0.0625]);
    /// taps.set(&[0.2; 5])?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such variable; the message lists the existing ones.
    /// [`Error::Range`](crate::Error::Range) if its size is not a multiple of the size of `T`.
    pub fn variable<T: Pod>(&self, name: &str) -> Result<Variable<T>> {
        let code = self.loaded();
        let found = code.globals.binary_search_by(|global| global.name.as_str().cmp(name));
        let Ok(index) = found else {
            let available = self.variable_names().map(str::to_owned).collect();
            return Err(cubin::Error::NoSuchVariable { name: name.to_owned(), available }.into());
        };
        let global = &code.globals[index];
        let element = size_of::<T>() as u64;
        if element == 0 || !global.bytes.is_multiple_of(element) {
            return Err(RangeError::VariableSize {
                name: name.to_owned(),
                bytes: global.bytes,
                element_bytes: element,
            }
            .into());
        }
        Ok(Variable {
            program: Arc::clone(code),
            // CAST: the offset is inside the image, which is mapped.
            offset: global.offset as usize,
            len: (global.bytes / element) as usize,
            constant: global.space == cubin::Space::Constant,
            managed: global.managed,
            _elements: PhantomData,
        })
    }
}

impl<T: Pod> Variable<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the variable is `__constant__`, which kernels cannot write.
    pub fn is_constant(&self) -> bool {
        self.constant
    }

    /// Whether the variable is `__managed__`: [`Variable::gpu_va`] is also its address on the CPU, which may access it
    /// while no work uses it.
    pub fn is_managed(&self) -> bool {
        self.managed
    }

    /// Address of the first element on the GPU.
    pub fn gpu_va(&self) -> u64 {
        self.program.memory.gpu_va() + self.offset as u64
    }

    /// Waits for the launches of the program, then returns the elements.
    ///
    /// # Errors
    ///
    /// The errors of the wait: [`Error::Fault`](crate::Error::Fault), [`Error::Timeout`](crate::Error::Timeout) or
    /// [`Error::NotSubmitted`](crate::Error::NotSubmitted).
    pub fn get(&self) -> Result<Vec<T>> {
        self.get_part(..)
    }

    /// As [`Variable::get`], for the elements in a range.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the range ends after the variable; as [`Variable::get`].
    pub fn get_part(&self, range: impl RangeBounds<usize>) -> Result<Vec<T>> {
        let range = resolve(&range, self.len)?;
        let mut elements = vec![T::zeroed(); range.len()];
        let bytes = self.bytes(range);
        bytes.wait()?;
        let _alone = self.program.variables.lock();
        bytes.copy_to_slice(bytemuck::cast_slice_mut(&mut elements))?;
        Ok(elements)
    }

    /// Waits for the launches of the program, then writes the elements. Later launches see them.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the lengths differ; the errors of the wait, as for [`Variable::get`].
    pub fn set(&self, elements: &[T]) -> Result<()> {
        if elements.len() != self.len {
            let (given, len) = (elements.len(), self.len);
            return Err(RangeError::VariableLength { given, len }.into());
        }
        self.set_part(0, elements)
    }

    /// As [`Variable::set`], for the elements from `start` on.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if there are more elements than the variable has from there on; as
    /// [`Variable::get`].
    pub fn set_part(&self, start: usize, elements: &[T]) -> Result<()> {
        let range = resolve(&(start..start.saturating_add(elements.len())), self.len)?;
        let bytes = self.bytes(range);
        bytes.wait()?;
        let _alone = self.program.variables.lock();
        SliceMut::over(bytes).copy_from_slice(bytemuck::cast_slice(elements))
    }

    /// The elements in a range, as the source of a copy or an argument of a launch.
    ///
    /// ```
    /// # #[cfg(feature = "sim")]
    /// # fn main() -> tegra_hcq::Result<()> {
    /// # use tegra_hcq::{DEFAULT_TIMEOUT, Device, DeviceKind, Program};
    /// # let device = Device::open(DeviceKind::Sim)?;
    /// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/globals.cubin"));
    /// # let mut queue = device.queue()?;
    /// let taps = Program::load(&device, cubin)?.variable::<f32>("taps")?;
    /// queue.upload(&[0.5, 0.75], taps.slice_mut(1..3)?)?; // in the order of the queue
    /// assert_eq!(queue.download(taps.slice(..3)?)?.wait(DEFAULT_TIMEOUT)?, [0.0625, 0.5, 0.75]);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the range ends after the variable, or if its elements are not at a
    /// multiple of their size in the program; elements of `u8` always are.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
        self.bytes(resolve(&range, self.len)?).cast()
    }

    /// As [`Variable::slice`], as the target of a copy. Launches on other queues may see a mix of old and new elements
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Variable::slice`].
    pub fn slice_mut(&self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>> {
        Ok(SliceMut::over(self.slice(range)?))
    }

    /// The bytes of a range of elements.
    fn bytes(&self, range: Range<usize>) -> Slice<'_, u8> {
        let size = size_of::<T>();
        // The cubin's parser checked that the variable is inside the image.
        Slice::new(&self.program.memory, self.offset + range.start * size, range.len() * size)
    }
}

impl<T: Pod> fmt::Debug for Variable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variable")
            .field("type", &core::any::type_name::<T>())
            .field("len", &self.len)
            .field("constant", &self.constant)
            .field("gpu_va", &format_args!("{:#x}", self.gpu_va()))
            .finish()
    }
}
