//! Recording of all queues of the process, for programs with an option for it, and for any program by a variable.
//!
//! Every queue opened while it is on records from the start, and adds its profile when it is dropped.

use core::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "reports")]
use std::{path::PathBuf, sync::OnceLock};

use parking_lot::Mutex;

use super::Profile;

/// Largest number of operations that are kept: a trace of some 50 MB.
pub(crate) const LIMIT: usize = 50_000;

static ON: AtomicBool = AtomicBool::new(false);
static COLLECTED: Mutex<Option<Profile>> = Mutex::new(None);

/// Environment variable with the folder in which a process writes a trace of its queues when it exits.
#[cfg(feature = "reports")]
const VARIABLE: &str = "NVGPU_TRACE_DIR";
/// That folder, and the process that has read the variable; `None` if it is not set.
#[cfg(feature = "reports")]
static FOLDER: OnceLock<Option<(PathBuf, u32)>> = OnceLock::new();

/// Starts recording if the environment asks for it. Does something only once per process.
#[cfg(feature = "reports")]
pub(crate) fn start_from_environment() {
    FOLDER.get_or_init(|| {
        let folder = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty())?;
        Profile::collect_all();
        // SAFETY: the function takes no arguments, does not unwind, and uses statics only.
        unsafe { libc::atexit(write_trace) };
        Some((folder.into(), std::process::id()))
    });
}

/// Writes the trace at exit. A child that was forked leaves that to its parent.
#[cfg(feature = "reports")]
extern "C" fn write_trace() {
    let Some(Some((folder, owner))) = FOLDER.get() else { return };
    let profile = COLLECTED.lock().take().unwrap_or_default();
    if *owner != std::process::id() || profile.is_empty() {
        return;
    }
    if let Err(error) = profile.write_chrome_trace(folder.join(format!("trace-{owner}.json"))) {
        // Not `eprint!`, which a test harness captures. A failure of this write cannot be reported.
        let _ =
            std::io::Write::write_all(&mut std::io::stderr(), format!("{VARIABLE}: {error}\n").as_bytes());
    }
}

/// Whether queues record and add their profiles.
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Adds the profile of a queue.
pub(crate) fn add(mut profile: Profile) {
    let mut collected = COLLECTED.lock();
    let all = collected.get_or_insert_default();
    let room = LIMIT.saturating_sub(all.spans.len());
    profile.left_out += profile.spans.len().saturating_sub(room);
    profile.spans.truncate(room);
    all.merge(profile);
}

impl Profile {
    /// Makes every queue of the process that is opened from now on record its operations (see
    /// [`Queue::profile`](crate::Queue::profile)) and add them to one profile when it is dropped. For programs with an
    /// option to profile a run. At most 50,000 operations are kept, the first ones; [`Profile::left_out`] counts the
    /// others.
    pub fn collect_all() {
        ON.store(true, Ordering::Relaxed);
    }

    /// Ends [`Profile::collect_all`], and takes the profiles of the queues that have been dropped. If `NVGPU_TRACE_DIR`
    /// is set, recording goes on, and the result is a copy.
    pub fn collected() -> Self {
        #[cfg(feature = "reports")]
        if matches!(FOLDER.get(), Some(Some(_))) {
            return COLLECTED.lock().clone().unwrap_or_default();
        }
        ON.store(false, Ordering::Relaxed);
        COLLECTED.lock().take().unwrap_or_default()
    }
}
