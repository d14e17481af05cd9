//! Kernels with typed parameters: one assertion makes their launches safe.
//!
//! A kernel may access any memory that the process has mapped for the GPU, so launching one with a plain list of
//! arguments ([`Queue::launch`]) is `unsafe`. [`Program::typed`] is the counterpart of an `unsafe extern` block for a C
//! function: its caller asserts once what the kernel's parameters are and that it stays within its buffers. The tuple
//! states which buffers the kernel reads (`&`) and which it writes (`&mut`). After that the compiler checks every
//! launch: an argument of another type, a missing argument, a shared borrow where the kernel writes, or a buffer that
//! the CPU is viewing does not compile. Conditions between arguments that types cannot express are checked by each
//! launch: a [`Count`] by itself, others by the function given to [`Program::typed_if`].
//!
//! Borrows end with the call. A buffer remembers the work that uses it and waits for that work wherever the CPU
//! accesses it, and a graph refuses replays while one of its buffers is viewed. A launch builds its argument list on
//! the stack and allocates nothing.
//!
//! Number, size and alignment of the parameters are compared with the cubin. Their types are not recorded there: a
//! signature with `i32` is accepted for a `float` parameter.

use core::any::type_name;
use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;

use crate::args::Arg;
use crate::error::{Error, Result};
use crate::graph::{Graph, GraphBuilder, NodeId};
use crate::limits::Dim3;
use crate::program::{Kernel, Program};
use crate::queue::Queue;

mod signature;

pub use signature::{Arguments, ByValue, Count, KernelArg, Pass, Signature};

/// Size of a launch, as the condition of a kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaunchSize {
    /// Grid in blocks.
    pub grid: Dim3,
    /// Block in threads.
    pub block: Dim3,
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
}

impl LaunchSize {
    /// Number of threads along x: the first index that no thread has.
    pub fn threads_x(&self) -> u64 {
        u64::from(self.grid.x) * u64::from(self.block.x)
    }

    /// Number of blocks, in all dimensions.
    pub fn blocks(&self) -> u64 {
        let [x, y, z] = self.grid.to_array().map(u64::from);
        x.saturating_mul(y).saturating_mul(z)
    }
}

/// What the arguments of a launch have to meet.
type Condition<A> = dyn Fn(&LaunchSize, &<A as Signature>::Passed<'_>) -> bool + Send + Sync;

/// A kernel whose parameters are the tuple `A`, and which stays within its buffers. Created by [`Program::typed`].
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// use std::time::Duration;
/// use tegra_hcq::{Count, Device, DeviceKind, Program};
///
/// let device = Device::open(DeviceKind::Sim)?;
/// let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
/// let program = Program::load(&device, cubin)?;
/// // __global__ void vector_add(const float* a, const float* b, float* c, unsigned n)
/// // SAFETY: reads a[i] and b[i] and writes c[i] for i < n.
/// let add = unsafe { program.typed::<(&[f32], &[f32], &mut [f32], Count<u32>)>("vector_add")? };
///
/// let a = device.alloc_from(&[1.0_f32; 1000])?;
/// let b = device.alloc_from(&[2.0_f32; 1000])?;
/// let mut c = device.alloc::<f32>(1000)?;
/// let mut queue = device.queue()?;
/// add.launch(&mut queue, 4, 256, (&a, &b, &mut c, 1000))?;
/// queue.wait(Duration::from_secs(10))?;
/// assert_eq!(c.to_vec()?, vec![3.0; 1000]);
///
/// // A count that a buffer does not have would make the kernel leave it.
/// let error = add.launch(&mut queue, 4, 256, (a.slice(..500)?, &b, &mut c, 1000)).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "kernel vector_add: argument 3 counts 1000 elements, but argument 0 has 500"
/// );
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
///
/// The compiler refuses a buffer of another element type:
///
/// ```compile_fail,E0277
/// use tegra_hcq::{Buffer, Queue, Result, TypedKernel};
///
/// type Scale = (&'static mut [f32], f32);
///
/// fn scale(kernel: &TypedKernel<Scale>, queue: &mut Queue, data: &mut Buffer<f64>) -> Result<()> {
///     kernel.launch(queue, 1, 256, (data, 2.0))
/// }
/// ```
///
/// It refuses a shared borrow of a buffer that the kernel writes:
///
/// ```compile_fail,E0277
/// use tegra_hcq::{Buffer, Queue, Result, TypedKernel};
///
/// type Scale = (&'static mut [f32], f32);
///
/// fn scale(kernel: &TypedKernel<Scale>, queue: &mut Queue, data: &Buffer<f32>) -> Result<()> {
///     kernel.launch(queue, 1, 256, (data, 2.0))
/// }
/// ```
///
/// It refuses to write a buffer that the same launch reads:
///
/// ```compile_fail,E0502
/// use tegra_hcq::{Buffer, Queue, Result, TypedKernel};
///
/// type Copy = (&'static [f32], &'static mut [f32]);
///
/// fn copy(kernel: &TypedKernel<Copy>, queue: &mut Queue, data: &mut Buffer<f32>) -> Result<()> {
///     kernel.launch(queue, 1, 256, (&*data, &mut *data))
/// }
/// ```
///
/// It refuses a buffer that the CPU is viewing:
///
/// ```compile_fail,E0499
/// use tegra_hcq::{Buffer, Queue, Result, TypedKernel};
///
/// type Scale = (&'static mut [f32], f32);
///
/// fn scale(kernel: &TypedKernel<Scale>, queue: &mut Queue, data: &mut Buffer<f32>) -> Result<f32> {
///     let view = data.view()?;
///     kernel.launch(queue, 1, 256, (&mut *data, 2.0))?;
///     Ok(view[0])
/// }
/// ```
///
/// Making one takes an assertion:
///
/// ```compile_fail,E0133
/// use tegra_hcq::{Program, Result, TypedKernel};
///
/// fn scale(program: &Program) -> Result<TypedKernel<(&'static mut [f32], f32)>> {
///     program.typed("scale")
/// }
/// ```
pub struct TypedKernel<A: Signature> {
    kernel: Kernel,
    condition: Option<Arc<Condition<A>>>,
    signature: PhantomData<fn(A)>,
}

impl<A: Signature> TypedKernel<A> {
    /// As [`Program::typed`], for a kernel at hand.
    ///
    /// # Errors
    ///
    /// [`Error::Arguments`] if the number of parameters differs, or the size or alignment of a parameter. The message
    /// gives the position and type of the parameter.
    ///
    /// # Safety
    ///
    /// As for [`Program::typed`].
    pub unsafe fn new(kernel: Kernel) -> Result<Self> {
        Self::checked(kernel, None)
    }

    fn checked(kernel: Kernel, condition: Option<Arc<Condition<A>>>) -> Result<Self> {
        match signature::check(&kernel.code().params, A::PARAMETERS) {
            Ok(()) => Ok(Self { kernel, condition, signature: PhantomData }),
            Err(reason) => Err(Error::Arguments { kernel: kernel.name().to_owned(), reason }),
        }
    }

    /// Adds a launch of `grid` blocks of `block` threads to the queue's batch, as [`Queue::launch`].
    ///
    /// # Errors
    ///
    /// As [`Queue::launch`]. [`Error::Arguments`] if a [`Count`] exceeds the length of a buffer, or if the kernel's
    /// condition does not hold.
    pub fn launch<'a>(
        &self,
        queue: &mut Queue,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        arguments: impl Arguments<'a, A>,
    ) -> Result<()> {
        self.launch_with_shared(queue, grid, block, 0, arguments)
    }

    /// As [`TypedKernel::launch`], with `shared_bytes` of dynamic shared memory per block.
    ///
    /// # Errors
    ///
    /// As [`TypedKernel::launch`].
    pub fn launch_with_shared<'a>(
        &self,
        queue: &mut Queue,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        shared_bytes: u32,
        arguments: impl Arguments<'a, A>,
    ) -> Result<()> {
        let size = LaunchSize { grid: grid.into(), block: block.into(), shared_bytes };
        self.with_args(&size, arguments, |arguments| {
            // SAFETY: the assertion made for the kernel covers these arguments. They borrow each buffer as the kernel
            // uses it, so no view exists, and the launch records the use.
            unsafe { queue.launch_with_shared(&self.kernel, size.grid, size.block, shared_bytes, arguments) }
        })
    }

    /// Adds a launch to a graph, as [`GraphBuilder::launch`]. The graph keeps the buffers alive, and the returned step
    /// changes the launch later ([`Graph::set_launch`]).
    ///
    /// # Errors
    ///
    /// As [`TypedKernel::launch`].
    pub fn record<'a>(
        &self,
        graph: &mut GraphBuilder,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        arguments: impl Arguments<'a, A>,
    ) -> Result<TypedNode<A>> {
        self.record_with_shared(graph, grid, block, 0, arguments)
    }

    /// As [`TypedKernel::record`], with `shared_bytes` of dynamic shared memory per block.
    ///
    /// # Errors
    ///
    /// As [`TypedKernel::launch`].
    pub fn record_with_shared<'a>(
        &self,
        graph: &mut GraphBuilder,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        shared_bytes: u32,
        arguments: impl Arguments<'a, A>,
    ) -> Result<TypedNode<A>> {
        let size = LaunchSize { grid: grid.into(), block: block.into(), shared_bytes };
        let id = self.with_args(&size, arguments, |arguments| {
            // SAFETY: as for a launch. A replay is refused while one of the buffers is viewed.
            unsafe { graph.launch_with_shared(&self.kernel, size.grid, size.block, shared_bytes, arguments) }
        })?;
        Ok(TypedNode { id, shared_bytes, kernel: self.clone() })
    }

    /// Checks the arguments of a launch, then passes them on as a list.
    #[inline]
    fn with_args<'a, R>(
        &self,
        size: &LaunchSize,
        arguments: impl Arguments<'a, A>,
        run: impl FnOnce(&[Arg<'_>]) -> Result<R>,
    ) -> Result<R> {
        let passed = arguments.pass();
        A::check_counts(&passed).map_err(|reason| self.refused(reason))?;
        if let Some(condition) = &self.condition
            && !condition(size, &passed)
        {
            let LaunchSize { grid, block, shared_bytes } = size;
            return Err(self.refused(format!(
                "the arguments do not meet the condition of its launches (grid {grid}, block {block}, {shared_bytes} \
                 bytes of dynamic shared memory)"
            )));
        }
        A::with_args(&passed, run)
    }

    #[cold]
    fn refused(&self, reason: String) -> Error {
        Error::Arguments { kernel: self.kernel.name().to_owned(), reason }
    }

    /// The kernel without its types.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }
}

// Derived implementations would require the same traits of `A`, of which no value exists here.
impl<A: Signature> Clone for TypedKernel<A> {
    fn clone(&self) -> Self {
        Self { kernel: self.kernel.clone(), condition: self.condition.clone(), signature: PhantomData }
    }
}

impl<A: Signature> fmt::Debug for TypedKernel<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedKernel")
            .field("name", &self.kernel.name())
            .field("signature", &type_name::<A>())
            .field("conditional", &self.condition.is_some())
            .finish()
    }
}

/// A launch in a graph whose arguments are the tuple `A`. Created by [`TypedKernel::record`].
pub struct TypedNode<A: Signature> {
    id: NodeId,
    shared_bytes: u32,
    kernel: TypedKernel<A>,
}

impl<A: Signature> TypedNode<A> {
    /// The step of the graph.
    pub fn id(&self) -> NodeId {
        self.id
    }
}

impl<A: Signature> Clone for TypedNode<A> {
    fn clone(&self) -> Self {
        Self { id: self.id, shared_bytes: self.shared_bytes, kernel: self.kernel.clone() }
    }
}

impl<A: Signature> fmt::Debug for TypedNode<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedNode").field("id", &self.id).field("kernel", &self.kernel).finish()
    }
}

impl Graph {
    /// Replaces grid, block and all arguments of a launch, from the next replay on. Only what differs is written.
    ///
    /// # Errors
    ///
    /// As [`TypedKernel::launch`]; [`Error::Range`] if the step belongs to another graph. Nothing changes in that case.
    pub fn set_launch<'a, A: Signature>(
        &mut self,
        node: &TypedNode<A>,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        arguments: impl Arguments<'a, A>,
    ) -> Result<()> {
        let size = LaunchSize { grid: grid.into(), block: block.into(), shared_bytes: node.shared_bytes };
        node.kernel.with_args(&size, arguments, |arguments| {
            self.change_launch(node.id, size.grid, size.block, arguments)
        })
    }
}

impl Program {
    /// The kernel named `name`, with the tuple `A` as its parameters. Its launches are safe.
    ///
    /// # Errors
    ///
    /// Those of [`Program::kernel`]. [`Error::Arguments`] if the number of parameters differs, or the size or alignment
    /// of a parameter.
    ///
    /// # Safety
    ///
    /// The kernel has these parameters. Launched with any arguments of these types whose [`Count`]s do not exceed the
    /// length of any buffer, and with any grid, block and dynamic shared memory, it accesses no memory that the process
    /// has mapped for the GPU, except that
    ///
    /// - it reads the buffers of the list, and the variables and constants of its program,
    /// - it writes the buffers that the tuple takes by `&mut`, and the variables of its program,
    ///
    /// whatever these contain. Its own stack and shared memory do not count. For a kernel that stays inside only under
    /// a condition, use [`Program::typed_if`].
    pub unsafe fn typed<A: Signature>(&self, name: &str) -> Result<TypedKernel<A>> {
        TypedKernel::checked(self.kernel(name)?, None)
    }

    /// As [`Program::typed`], for a kernel that stays within its buffers only if `condition` holds for the size of the
    /// launch and its arguments. Each launch checks it and returns [`Error::Arguments`] if it does not hold.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # use tegra_hcq::{Device, DeviceKind, Program};
    /// # let device = Device::open(DeviceKind::Sim)?;
    /// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/dynamic_shared.cubin"));
    /// # let program = Program::load(&device, cubin)?;
    /// // __global__ void dynamic_sum(const float* in, float* out): reads in[threadIdx.x], keeps a float per thread in
    /// // dynamic shared memory, and writes out[0].
    /// // SAFETY: the condition keeps the only index inside both buffers.
    /// let sum = unsafe {
    ///     program.typed_if::<(&[f32], &mut [f32])>("dynamic_sum", |size, (input, out)| {
    ///         size.threads_x() <= input.len() as u64 && !out.is_empty()
    ///     })?
    /// };
    /// # let input = device.alloc_from(&[0.5_f32; 32])?;
    /// # let mut out = device.alloc::<f32>(1)?;
    /// # let mut queue = device.queue()?;
    /// assert!(sum.launch_with_shared(&mut queue, 1, 64, 256, (&input, &mut out)).is_err());
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Program::typed`].
    ///
    /// # Safety
    ///
    /// As for [`Program::typed`], for the launches for which `condition` returns `true`.
    pub unsafe fn typed_if<A: Signature>(
        &self,
        name: &str,
        condition: impl Fn(&LaunchSize, &A::Passed<'_>) -> bool + Send + Sync + 'static,
    ) -> Result<TypedKernel<A>> {
        TypedKernel::checked(self.kernel(name)?, Some(Arc::new(condition)))
    }
}
