//! What a panicking test said, and where.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// `Some` while this thread runs a test; then the panic's text.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on a panic inside of [`catch`] is kept instead of printed; others go where they went.
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

/// Runs `body`; `Err` is the text of its panic.
pub(crate) fn catch<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    install();
    CAUGHT.set(Some(String::new()));
    // Nothing of what a panicking test leaves behind is used again but the context, whose only state
    // is a list of notes and a device that is there or not.
    let result = panic::catch_unwind(AssertUnwindSafe(body));
    let text = CAUGHT.take().unwrap_or_default();
    result.map_err(|payload| if text.is_empty() { message(&*payload).to_owned() } else { text })
}

fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text")
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
