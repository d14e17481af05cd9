//! Recording of all queues of the process, for programs with an option for it.
//!
//! Every queue opened while it is on records from the start, and adds its profile when it is dropped.

use core::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::Profile;

/// Largest number of operations that are kept: a trace of some 50 MB.
pub(crate) const LIMIT: usize = 50_000;

static ON: AtomicBool = AtomicBool::new(false);
static COLLECTED: Mutex<Option<Profile>> = Mutex::new(None);

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

    /// Ends [`Profile::collect_all`], and takes the profiles of the queues that have been dropped.
    pub fn collected() -> Self {
        ON.store(false, Ordering::Relaxed);
        COLLECTED.lock().take().unwrap_or_default()
    }
}
