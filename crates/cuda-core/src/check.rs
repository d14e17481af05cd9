//! What the checks of the software Orin have found so far, for programs that run several tests in one process.

use tegra_hcq::check;

use crate::code::Result;
use crate::context::Context;
use crate::driver::driver;

/// Waits for the work of all contexts. Returns a text for each finding so far and for each fault that has stopped a
/// channel. A finding that occurs again has another text, because that contains the number of occurrences.
///
/// # Errors
///
/// [`Code::NotInitialized`](crate::Code::NotInitialized).
pub fn findings() -> Result<Vec<String>> {
    let driver = driver()?;
    for context in driver.objects.all::<Context>(|_| true) {
        // A fault is reported below, and by the next call of the program.
        let _ = context.synchronize();
    }
    let mut texts = Vec::new();
    for device in driver.gpus.iter().filter_map(crate::Gpu::opened) {
        texts.extend(check::findings(&device).iter().map(ToString::to_string));
        let faults = check::checker(&device).map(|checker| checker.work().faults).unwrap_or_default();
        texts.extend(faults.iter().map(|fault| format!("the GPU stopped a channel: {fault}")));
    }
    Ok(texts)
}
