#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod arch;
mod callgraph;
mod contents;
mod elf;
mod error;
mod frames;
mod image;
mod info;
mod kernel;
mod names;
mod parse;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

pub use contents::{Attribute, Contents, Relocation, Section, Symbol};
pub use error::Error;
pub use image::{CONSTANT_ALIGN, PREFETCH_SLACK_BYTES};
pub use kernel::{ConstantBank, Kernel, Param};

use image::Image;

/// Version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where a variable of a module lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Global memory: `__device__`.
    Global,
    /// A constant bank: `__constant__`. Writes by the host take effect for the launches whose constant
    /// caches are invalidated first.
    Constant,
}

/// A variable of a module that the host can reach by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Name in the symbol table (mangled for C++ names in namespaces, and for static locals).
    pub name: String,
    /// Memory space.
    pub space: Space,
    /// Offset of its first byte in the image, in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// A parsed cubin: everything that loading and launching its kernels needs, without the file.
#[derive(Clone, Debug)]
pub struct Cubin {
    sm: u32,
    accelerated: bool,
    kernels: Vec<Kernel>,
    globals: Vec<Global>,
    image: Image,
}

impl Cubin {
    /// Parses a whole-program cubin (ELF type `ET_EXEC`, CUDA ABI version 7 or 8: toolkits 11 to 13).
    ///
    /// Work and memory are bounded by a small multiple of `bytes.len()`, whatever the bytes are.
    ///
    /// # Errors
    ///
    /// One of the variants of [`Error`], naming the table, section, symbol or attribute at fault.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        parse::parse(bytes)
    }

    /// The SM version that the code was compiled for: 87 is compute capability 8.7.
    pub fn sm(&self) -> u32 {
        self.sm
    }

    /// Whether the code was compiled for the architecture-specific feature set (`sm_90a`), which
    /// binds it to exactly that compute capability.
    pub fn is_accelerated(&self) -> bool {
        self.accelerated
    }

    /// Says whether a GPU of SM version `gpu_sm` (87: compute capability 8.7) can run the code.
    ///
    /// CUDA's rule of binary compatibility: code compiled for X.y runs on X.z when z >= y; code of
    /// Tegra chips (sm_53, sm_62, sm_72, sm_87, sm_101) runs on exactly the chip it was compiled for, and a
    /// Tegra chip runs no other code (CUDA C++ Programming Guide, "Binary Compatibility"). On sm_87 the
    /// compiler also puts a hardware work-around at the start of each kernel that code for sm_80 or sm_86
    /// lacks. Architecture-specific code (`sm_90a`) runs on exactly its own compute capability.
    ///
    /// # Errors
    ///
    /// [`Error::WrongArchitecture`], naming both architectures.
    pub fn check_arch(&self, gpu_sm: u32) -> Result<(), Error> {
        arch::check(self.sm, self.accelerated, gpu_sm)
    }

    /// All kernels, sorted by name.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The kernel with this name. A C++ kernel that is not `extern "C"` has its mangled name.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchKernel`], listing the names that there are.
    pub fn kernel(&self, name: &str) -> Result<&Kernel, Error> {
        match self.kernels.binary_search_by(|k| k.name.as_str().cmp(name)) {
            Ok(at) => Ok(&self.kernels[at]),
            Err(_) => Err(Error::NoSuchKernel {
                name: name.to_string(),
                available: self.kernels.iter().map(|k| k.name.clone()).collect(),
            }),
        }
    }

    /// All variables in global and constant memory, sorted by name.
    pub fn globals(&self) -> &[Global] {
        &self.globals
    }

    /// The `__device__` or `__constant__` variable with this name.
    pub fn global(&self, name: &str) -> Option<&Global> {
        let at = self.globals.binary_search_by(|g| g.name.as_str().cmp(name)).ok()?;
        Some(&self.globals[at])
    }

    /// Bytes of GPU memory that the image takes, a multiple of [`CONSTANT_ALIGN`].
    ///
    /// The size includes at least [`PREFETCH_SLACK_BYTES`] after the last instruction, so that mapping
    /// exactly the image is enough for the instruction prefetcher.
    pub fn image_bytes(&self) -> u64 {
        self.image.bytes()
    }

    /// What the load address must be a multiple of, in bytes: a power of two, at least
    /// [`CONSTANT_ALIGN`] and at most 4096.
    pub fn image_align(&self) -> u64 {
        self.image.align()
    }

    /// The image as it must stand in GPU memory at `base_va`: code, constant banks 2 and up, and
    /// variables, relocated.
    ///
    /// # Errors
    ///
    /// [`Error::BadBase`] when `base_va` is not aligned to [`Cubin::image_align`] or the image would end
    /// above the 49-bit address space; [`Error::BadRelocation`] when an address does not fit its field.
    pub fn image_at(&self, base_va: u64) -> Result<Vec<u8>, Error> {
        let bytes = usize::try_from(self.image.bytes())
            .map_err(|_| Error::ImageTooLarge { bytes: self.image.bytes() })?;
        self.image.check_base(base_va)?;
        let mut image = alloc::vec![0; bytes];
        self.image.write(base_va, &mut image)?;
        Ok(image)
    }

    /// Writes the image for load address `base_va` into `out`, all of it, zeros included.
    ///
    /// `out` is ordinary memory of the host; copy it to GPU memory afterwards.
    ///
    /// # Errors
    ///
    /// As [`Cubin::image_at`], and [`Error::WrongImageLength`] when `out` is not
    /// [`Cubin::image_bytes`] long.
    pub fn write_image(&self, base_va: u64, out: &mut [u8]) -> Result<(), Error> {
        if u64::try_from(out.len()) != Ok(self.image.bytes()) {
            return Err(Error::WrongImageLength { given: out.len(), needed: self.image.bytes() });
        }
        self.image.check_base(base_va)?;
        out.fill(0);
        self.image.write(base_va, out)
    }
}
