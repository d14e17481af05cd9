//! Captures the message and location of a test's panic.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// `Some` while this thread runs a test; contains the panic's message.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Installs a hook that captures panics inside [`catch`] instead of printing them; other panics are
/// unaffected.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let caught = CAUGHT.with_borrow_mut(|caught| {
                let place = info.location().map(|at| format!(" ({}:{})", at.file(), at.line()));
                let text = message(info.payload()).to_owned() + &place.unwrap_or_default();
                caught.as_mut().map(|caught| *caught = text).is_some()
            });
            if !caught {
                before(info);
            }
        }));
    });
}

/// Runs `body`; `Err` is the message of its panic.
pub(crate) fn catch<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    install();
    CAUGHT.set(Some(String::new()));
    // After a panic only the context is used again. Its only state is a list of notes and an optional device.
    let result = panic::catch_unwind(AssertUnwindSafe(body));
    let text = CAUGHT.take().unwrap_or_default();
    result.map_err(|payload| if text.is_empty() { message(&*payload).to_owned() } else { text })
}

fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_text_with_its_place() {
        assert_eq!(catch(|| 7), Ok(7));
        let text = catch(|| -> u32 { panic!("value {}", 5) }).unwrap_err();
        assert!(text.starts_with("value 5 (") && text.contains("panics.rs:"), "{text}");
    }
}
