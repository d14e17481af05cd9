//! Programs from CUDA C++ source and from images of any kind (feature `nvrtc`).

use orin_compile::{Compiled, Compiler, JitOptions, LinkInput, Linker, Source};

use crate::device::Device;
use crate::error::Result;
use crate::program::Program;

impl Program {
    /// Compiles CUDA C++ source for the device's architecture with [`Compiler::shared`], and loads the
    /// result. Warnings of the compiler go to the log ([`tracing`]); [`Compiler::compile`] returns them.
    ///
    /// ```no_run
    /// use tegra_hcq::{Device, DeviceKind, Program};
    ///
    /// # fn main() -> tegra_hcq::Result<()> {
    /// let device = Device::open(DeviceKind::Auto)?;
    /// let source = "extern \"C\" __global__ void set(int* out) { *out = N; }";
    /// let program = Program::compile(&device, source, &["-DN=42"])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Compiler::load`], [`Compiler::compile`] and [`Program::load`].
    pub fn compile(device: &Device, source: &str, options: &[&str]) -> Result<Self> {
        let source = options.iter().fold(Source::new(source), |source, &option| source.option(option));
        Self::from_source(device, &source)
    }

    /// As [`Program::compile`], for a source with a name, headers or template instances.
    ///
    /// ```no_run
    /// use tegra_hcq::{Device, DeviceKind, Program, Source};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = Device::open(DeviceKind::Auto)?;
    /// let text = std::fs::read_to_string("set.cu")?;
    /// let program = Program::from_source(&device, &Source::new(text).name("set.cu").option("-DN=42"))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Compiler::load`], [`Compiler::compile`] and [`Program::load`].
    pub fn from_source(device: &Device, source: &Source) -> Result<Self> {
        Self::from_compiled(device, &Compiler::shared()?.compile(source, device.info().sm_version)?)
    }

    /// Loads an image of any kind: a cubin, PTX, a fat binary with one of them for the device, or an object with
    /// relocatable device code. PTX and objects are compiled and linked by [`Linker::shared`]. `name` identifies the
    /// image in error messages. Warnings go to the log; [`Linker::link`] returns them.
    ///
    /// ```no_run
    /// use tegra_hcq::{Device, DeviceKind, JitOptions, Program};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = Device::open(DeviceKind::Auto)?;
    /// let image = std::fs::read("kernels.fatbin")?;
    /// let program = Program::from_image(&device, "kernels.fatbin", &image, &JitOptions::default())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Linker::link`] and [`Program::load`].
    pub fn from_image(device: &Device, name: &str, image: &[u8], options: &JitOptions) -> Result<Self> {
        let input = LinkInput { name, data: image };
        Self::from_compiled(device, &Linker::shared().link(&[input], options, device.info().sm_version)?)
    }

    /// Loads the result of a compiler, whose warnings go to the log.
    fn from_compiled(device: &Device, compiled: &Compiled) -> Result<Self> {
        if !compiled.log.trim().is_empty() {
            tracing::warn!("{}", compiled.log.trim_end());
        }
        Self::load(device, &compiled.cubin)
    }
}
