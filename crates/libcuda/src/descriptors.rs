//! Structures of `cuda.h` that the run-time library passes to the driver, too: this file is in both crates.

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Descriptor3d {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// `CUDA_TEXTURE_DESC`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TextureDescriptor {
    pub(crate) addressing: [u32; 3],
    pub(crate) filter: u32,
    pub(crate) flags: u32,
    pub(crate) anisotropy: u32,
    pub(crate) level_filter: u32,
    pub(crate) bias: f32,
    pub(crate) min_level: f32,
    pub(crate) max_level: f32,
    pub(crate) border: [f32; 4],
    pub(crate) reserved: [u32; 12],
}
