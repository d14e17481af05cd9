//! Options of programs that use the GPU: the device, and profiles of a whole run (a table, a trace).

use std::path::PathBuf;

use tegra_hcq::Profile;

use crate::exit::warn;
use crate::output::{Output, OutputError};

/// Help of `--device`, with which programs choose a [`tegra_hcq::DeviceName`].
pub const DEVICE: &str = "Device: auto (the Orin's GPU, else a desktop GPU that can be driven, else the software \
                          Orin), nvgpu, nvrm or sim; nvrm:1 is its second GPU, nvrm:0000:19:00.0 the one at a PCI \
                          address";

/// Options of programs that use the GPU.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ProfileOptions {
    /// Print the GPU times of all launches, copies, fills and graphs of the run, by name, to standard error
    #[arg(long)]
    pub profile: bool,
    /// Write a trace of the run for Perfetto (ui.perfetto.dev)
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

/// A run that is recorded.
#[derive(Debug)]
#[must_use = "nothing is written without `finish`"]
pub struct Recording {
    table: bool,
    trace: Option<Output>,
}

impl ProfileOptions {
    /// Checks that the trace can be written, and starts to record if an option asks for it.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn begin(&self) -> Result<Recording, OutputError> {
        let trace = self.trace.as_ref().map(Output::prepare).transpose()?;
        if self.profile || trace.is_some() {
            Profile::collect_all();
        }
        Ok(Recording { table: self.profile, trace })
    }
}

impl Recording {
    /// Prints and writes what queues that have been dropped by now have recorded.
    ///
    /// # Errors
    ///
    /// If the trace cannot be written.
    pub fn finish(self) -> Result<(), anyhow::Error> {
        if !self.table && self.trace.is_none() {
            return Ok(());
        }
        let profile = Profile::collected();
        if self.table {
            warn(profile.table().trim_end());
        }
        if let Some(output) = &self.trace {
            let mut bytes = Vec::new();
            profile.chrome_trace(&mut bytes)?;
            output.write(&bytes)?;
        }
        Ok(())
    }
}
