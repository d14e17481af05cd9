//! Compiles the kernels. `kernels/kernels.lock` and the cubins are committed, so NVRTC is needed only after a change.

fn main() -> Result<(), orin_build::Error> {
    orin_build::Kernels::new().file("kernels/saxpy.cu").arch("sm_87").committed("kernels").compile()
}
