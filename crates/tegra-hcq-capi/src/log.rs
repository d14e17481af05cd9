//! Events of the library, passed to a callback.

use core::ffi::{c_char, c_void};
use core::fmt::{self, Write as _};
use std::sync::OnceLock;

use parking_lot::RwLock;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::fork::Use;
use crate::status::{Failure, Status, c_text, guard};

/// A function that receives the events of the library, from any thread: level (1 error, 2 warning, 3 information,
/// 4 debug, 5 trace), module, text, and the pointer given with the function. The strings are valid during the call. The
/// function must not call functions of this library and must not unwind.
#[allow(non_camel_case_types, reason = "this is the name of the C header")]
pub type tegra_hcq_log_callback =
    Option<unsafe extern "C" fn(level: u32, module: *const c_char, text: *const c_char, user: *mut c_void)>;

/// The function that receives events, and its pointer.
struct Target {
    callback: unsafe extern "C" fn(u32, *const c_char, *const c_char, *mut c_void),
    user: *mut c_void,
    most: LevelFilter,
}

// SAFETY: the caller of `tegra_hcq_set_log` promises a function and a pointer that any thread may use.
unsafe impl Send for Target {}
// SAFETY: as for `Send`.
unsafe impl Sync for Target {}

static TARGET: RwLock<Option<Target>> = RwLock::new(None);
/// Whether the process's subscriber is ours.
static INSTALLED: OnceLock<bool> = OnceLock::new();

fn most() -> LevelFilter {
    let target = TARGET.read();
    target.as_ref().map_or(LevelFilter::OFF, |target| target.most)
}

/// Passes events to the callback.
struct Forward;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Forward {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> tracing_core::Interest {
        if *metadata.level() <= most() {
            tracing_core::Interest::always()
        } else {
            tracing_core::Interest::never()
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(most())
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let level = match *event.metadata().level() {
            Level::ERROR => 1,
            Level::WARN => 2,
            Level::INFO => 3,
            Level::DEBUG => 4,
            Level::TRACE => 5,
        };
        let (module, text) = (c_text(event.metadata().target()), c_text(&text.whole()));
        let target = TARGET.read();
        if let Some(target) = target.as_ref().filter(|target| *event.metadata().level() <= target.most) {
            // SAFETY: the promise of the caller of `tegra_hcq_set_log`. The lock keeps the callback set meanwhile.
            unsafe { (target.callback)(level, module.as_ptr(), text.as_ptr(), target.user) };
        }
    }
}

/// The message of an event and its fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn whole(self) -> String {
        self.message + &self.fields
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}

/// Passes events of the library up to `level` (0 none, 1 error, 2 warning, 3 information, 4 debug, 5 trace) to a
/// function; NULL stops that. Applies to the whole process. When the call returns, the earlier function is not called
/// any more. Thread-safe, but not to be called by the function.
///
/// Returns TEGRA_HCQ_STATUS_BUSY if a Rust program in this process has its own subscriber.
///
/// # Safety
///
/// Any thread may call `callback` with `user` until it is replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_set_log(
    level: u32,
    callback: tegra_hcq_log_callback,
    user: *mut c_void,
) -> Status {
    guard(|| {
        let most = match level {
            0 => LevelFilter::OFF,
            1 => LevelFilter::ERROR,
            2 => LevelFilter::WARN,
            3 => LevelFilter::INFO,
            4 => LevelFilter::DEBUG,
            5 => LevelFilter::TRACE,
            _ => return Err(Failure::argument(format!("level is {level}; permitted are 0 to 5"))),
        };
        let _begun = Use::begin();
        let installed = INSTALLED.get_or_init(|| {
            let subscriber = tracing_subscriber::registry().with(Forward);
            tracing::subscriber::set_global_default(subscriber).is_ok()
        });
        if !installed {
            return Err(Failure::new(Status::Busy, "the process already has a subscriber of tracing events"));
        }
        let target = callback.map(|callback| Target { callback, user, most });
        *TARGET.write() = target;
        tracing_core::callsite::rebuild_interest_cache();
        Ok(())
    })
}
