//! The compiled kernels, embedded in the program.

use cubin::Cubin;
use tegra_hcq::{Device, Program};

use crate::error::{Error, Result};

/// The kernels of one file in `kernels/`.
#[derive(Debug)]
pub struct Kernels {
    /// Name of the file, without its ending.
    pub file: &'static str,
    /// The cubins of the file, one per architecture. The first one that runs on the GPU is used.
    pub images: &'static [&'static [u8]],
}

/// Minimal kernels.
pub static BASICS: Kernels = Kernels {
    file: "basics",
    images: &[
        include_bytes!("../../kernels/basics.cubin"),
        include_bytes!("../../kernels/sm_90/basics.cubin"),
    ],
};

/// Addition of two vectors.
pub static VECTOR_ADD: Kernels = Kernels {
    file: "vector_add",
    images: &[
        include_bytes!("../../kernels/vector_add.cubin"),
        include_bytes!("../../kernels/sm_90/vector_add.cubin"),
    ],
};

impl Kernels {
    /// Returns the image for a GPU. `sm` is ten times the major number of its SM version plus the minor.
    ///
    /// # Errors
    ///
    /// [`Error::NoImage`] if no image runs on that GPU.
    pub fn image(&self, sm: u32) -> Result<&'static [u8]> {
        for image in self.images {
            if self.parse(image)?.check_arch(sm).is_ok() {
                return Ok(image);
            }
        }
        Err(Error::NoImage { file: self.file, sm })
    }

    /// Loads the image for a device.
    ///
    /// # Errors
    ///
    /// [`Error::NoImage`], or an error of [`Program::load`].
    pub fn load(&self, device: &Device) -> Result<Program> {
        let (major, minor) = device.info().sm_version;
        Ok(Program::load(device, self.image(10 * major + minor)?)?)
    }

    /// Parses an image.
    pub(crate) fn parse(&self, image: &[u8]) -> Result<Cubin> {
        Cubin::parse(image).map_err(|source| Error::Cubin { file: self.file, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_an_image_for_the_orin_and_for_hopper() {
        for kernels in [&BASICS, &VECTOR_ADD] {
            let image = kernels.image(87).unwrap();
            assert_eq!(kernels.parse(image).unwrap().sm(), 87);
            let image = kernels.image(90).unwrap();
            assert_eq!(kernels.parse(image).unwrap().sm(), 90);
        }
    }

    #[test]
    fn another_gpu_is_refused_with_its_name() {
        let error = BASICS.image(75).unwrap_err().to_string();
        assert!(error.contains("kernels/basics.cu") && error.contains("sm_75"), "{error}");
    }
}
