//! Profiles of programs that open their own software Orin: settings from the environment, and a file at the end.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Profiler, Selection, Unprofiled};
use crate::at_exit::AtExit;
use crate::settings::SettingsError;

/// Environment variable with the path of a file to which the profiles of a program's kernels are appended, one JSON
/// object per line, when the program closes its device or exits.
pub const PROFILE_VARIABLE: &str = "ORIN_SIM_PROFILE";
/// Environment variable with the names of the kernels to profile, separated by commas; `*` stands for any characters.
pub const KERNELS_VARIABLE: &str = "ORIN_SIM_PROFILE_KERNELS";
/// Environment variable with the launches to profile: `SKIP` or `SKIP,COUNT`.
pub const LAUNCHES_VARIABLE: &str = "ORIN_SIM_PROFILE_LAUNCHES";

/// Profilers to write when the process exits, and their files.
static OPEN: AtExit<(Profiler, PathBuf)> = AtExit::new();

impl Profiler {
    /// The profiler that the environment selects, if any.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Variable`] for launches that are not numbers.
    pub(crate) fn from_environment() -> Result<Option<Self>, SettingsError> {
        let Some(path) = std::env::var_os(PROFILE_VARIABLE).filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let value = |name| std::env::var(name).unwrap_or_default();
        let kernels = value(KERNELS_VARIABLE);
        let kernels = kernels.split(',').map(str::trim).filter(|name| !name.is_empty());
        let launches = value(LAUNCHES_VARIABLE);
        let (skip, count) = parse_launches(&launches)
            .map_err(|error| SettingsError::variable(LAUNCHES_VARIABLE, &launches, error))?;
        let selection = Selection { kernels: kernels.map(str::to_owned).collect(), skip, count };
        let profiler = Self::new(selection);
        OPEN.push((profiler.clone(), path.into()), at_exit);
        Ok(Some(profiler))
    }
}

/// Parses `SKIP` or `SKIP,COUNT`.
fn parse_launches(text: &str) -> Result<(u64, Option<u64>), String> {
    let number = |text: &str| {
        let parsed = text.trim().parse::<u64>();
        parsed.map_err(|_| format!("'{text}' is not a number; give SKIP or SKIP,COUNT"))
    };
    match text.split_once(',') {
        None if text.is_empty() => Ok((0, None)),
        None => Ok((number(text)?, None)),
        Some((skip, count)) => Ok((number(skip)?, Some(number(count)?))),
    }
}

/// Writes the profiles of a board that is powered off.
pub(crate) fn close(profiler: &Profiler) {
    if let Some(closed) = OPEN.remove(|(other, _)| Arc::ptr_eq(&other.0, &profiler.0)) {
        write(&closed);
    }
}

fn write((profiler, path): &(Profiler, PathBuf)) {
    let (profiles, unprofiled) = (profiler.profiles(), profiler.unprofiled());
    let mut lines: Result<Vec<String>, _> = profiles.iter().map(serde_json::to_string).collect();
    if profiles.is_empty() && unprofiled != Unprofiled::default() {
        lines = serde_json::to_string(&unprofiled).map(|line| vec![line]);
    }
    let written = lines.map_err(std::io::Error::from).and_then(|lines| {
        if lines.is_empty() {
            return Ok(());
        }
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        file.write_all((lines.join("\n") + "\n").as_bytes())
    });
    if let Err(error) = written {
        let text = format!("{PROFILE_VARIABLE}: {}: {error}\n", path.display());
        // Not `eprint!`, which a test harness captures. A failure of this write cannot be reported.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

/// Runs when the process exits.
extern "C" fn at_exit() {
    OPEN.take().iter().for_each(write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_are_numbers() {
        assert_eq!(parse_launches(""), Ok((0, None)));
        assert_eq!(parse_launches("3"), Ok((3, None)));
        assert_eq!(parse_launches("3, 1"), Ok((3, Some(1))));
        assert!(parse_launches("x").is_err() && parse_launches("1,").is_err());
    }
}
