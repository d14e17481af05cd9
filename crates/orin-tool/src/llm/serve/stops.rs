//! Texts that end an answer.

/// Passes a text on up to the first of some texts, which may be spread over its parts.
#[derive(Debug)]
pub(super) struct Stops {
    stops: Vec<String>,
    /// Possible start of a stop.
    held: String,
    is_found: bool,
}

impl Stops {
    /// For stops that are not empty.
    pub(super) fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new(), is_found: false }
    }

    /// Whether a stop was found: nothing follows.
    pub(super) fn is_found(&self) -> bool {
        self.is_found
    }

    /// Adds a part of the text; returns the part that is certainly in front of a stop.
    pub(super) fn push(&mut self, part: &str) -> String {
        if self.is_found {
            return String::new();
        }
        self.held.push_str(part);
        let first = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(first) = first {
            self.is_found = true;
            self.held.truncate(first);
            return std::mem::take(&mut self.held);
        }
        let start = self.held.char_indices().map(|(at, _)| at).find(|at| {
            let end = &self.held[*at..];
            self.stops.iter().any(|stop| stop.starts_with(end))
        });
        let rest = self.held.split_off(start.unwrap_or(self.held.len()));
        std::mem::replace(&mut self.held, rest)
    }

    /// The end of the text.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(stops: &[&str], parts: &[&str]) -> (Vec<String>, bool) {
        let stops: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
        let mut stops = Stops::new(stops);
        let mut passed: Vec<String> = parts.iter().map(|part| stops.push(part)).collect();
        passed.push(stops.finish());
        (passed, stops.is_found())
    }

    #[test]
    fn a_stop_is_found_across_parts() {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        assert_eq!(passed(&[], &["a", "b"]), (owned(&["a", "b", ""]), false));
        assert_eq!(passed(&["END"], &["xE", "N", "Dy", "z"]), (owned(&["x", "", "", "", ""]), true));
        assert_eq!(passed(&["END"], &["xE", "N", "x"]), (owned(&["x", "", "ENx", ""]), false));
        assert_eq!(passed(&["END"], &["aEEN"]), (owned(&["aE", "EN"]), false));
        assert_eq!(passed(&["é!", "\n\n"], &["aé", "b\n", "\nc"]), (owned(&["a", "éb", "", ""]), true));
        assert_eq!(passed(&["bc", "abcd"], &["xabcd"]), (owned(&["x", ""]), true));
    }
}
