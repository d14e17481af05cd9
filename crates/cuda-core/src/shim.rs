//! Temporary.
use tegra_hcq::*;
pub(crate) trait B {
    fn host_function(&mut self, f: impl FnOnce() + Send + 'static) -> Result<()>;
}
impl B for Queue {
    fn host_function(&mut self, f: impl FnOnce() + Send + 'static) -> Result<()> {
        self.submit()?.wait(DEFAULT_TIMEOUT)?;
        f();
        Ok(())
    }
}
