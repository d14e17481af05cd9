//! Launches and submissions: how a kernel's arguments reach the GPU. `docs/architecture.md` lists the files.

pub(crate) mod lanes;
pub(crate) mod record;
pub(crate) mod shape;
pub(crate) mod submit;

#[cfg(test)]
mod tests;
