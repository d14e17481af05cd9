//! Finds the files that a source includes, so a cached result is not used after one of them has changed.
//!
//! The search covers include directives and `__has_include`, and ignores `#if` and comments. It notes every file that a
//! name could refer to: too many rather than too few. Headers of CUDA, which are thousands, are not followed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Largest number of files to follow.
const MAX_FILES: usize = 4096;
/// Options that read or write other files; they disable caching.
const OTHER_FILES: [&str; 6] =
    ["options-file", "optf", "time", "fdevice-time-trace", "create-pch", "use-pch"];

/// Include options.
#[derive(Debug, Default, PartialEq, Eq)]
struct Search {
    folders: Vec<PathBuf>,
    /// Files included before the source.
    names: Vec<String>,
}

/// Contents by path of all files that `texts`, read under `name` with these options, may include. `None` if the files
/// cannot be determined; the result must then not be cached. Of a file in one of the folders `cuda`, size and time of
/// the last change take the place of the contents.
pub(super) fn files<'a>(
    name: &str,
    texts: impl IntoIterator<Item = &'a str>,
    options: &[String],
    cuda: &[PathBuf],
) -> Option<BTreeMap<PathBuf, Vec<u8>>> {
    let mut search = Search::of(options)?;
    let source_folder = Path::new(name).parent().unwrap_or(Path::new("")).to_owned();
    search.folders.push(source_folder);
    let mut found = BTreeMap::new();
    // Include names to look up, each with the folder of the including file.
    let mut open: Vec<(PathBuf, String)> = Vec::new();
    open.extend(search.names.drain(..).map(|name| (PathBuf::new(), name)));
    for text in texts {
        open.extend(included(text)?.into_iter().map(|name| (PathBuf::new(), name)));
    }
    while let Some((beside, name)) = open.pop() {
        for folder in core::iter::once(&beside).chain(&search.folders) {
            let path = folder.join(&name);
            if found.contains_key(&path) || !path.is_file() {
                continue;
            }
            if cuda.contains(folder) {
                let about = path.metadata().ok()?;
                found.insert(path, format!("{} {:?}", about.len(), about.modified().ok()?).into_bytes());
                continue;
            }
            let content = std::fs::read(&path).ok()?;
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            let names = included(&String::from_utf8_lossy(&content))?;
            open.extend(names.into_iter().map(|name| (folder.clone(), name)));
            found.insert(path, content);
            if found.len() > MAX_FILES {
                return None;
            }
        }
    }
    Some(found)
}

impl Search {
    fn of(options: &[String]) -> Option<Self> {
        let mut search = Self::default();
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let bare = option.trim_start_matches('-');
            if OTHER_FILES.iter().any(|other| bare.starts_with(other)) || bare.starts_with("pch") {
                return None;
            }
            // The value of `-I` follows `=`, is attached, or is the next option.
            let include_path = bare.strip_prefix("include-path").or_else(|| bare.strip_prefix('I'));
            if let Some(value) = include_path {
                search.folders.push(PathBuf::from(value_or_next(value, &mut options)?));
            } else if let Some(value) =
                bare.strip_prefix("pre-include").or_else(|| bare.strip_prefix("include"))
            {
                search.names.push(value_or_next(value, &mut options)?.to_owned());
            }
        }
        Some(search)
    }
}

fn value_or_next<'a>(attached: &'a str, rest: &mut core::slice::Iter<'a, String>) -> Option<&'a str> {
    match attached.strip_prefix('=').unwrap_or(attached) {
        "" => rest.next().map(String::as_str),
        value => Some(value),
    }
}

/// Names in the include directives of a text; `None` if a directive has no literal name.
fn included(text: &str) -> Option<Vec<String>> {
    // A backslash at the end of a line joins it with the next one.
    let joined = text.replace("\\\r\n", "").replace("\\\n", "");
    let mut names = Vec::new();
    for line in joined.lines() {
        for (at, word) in line.match_indices("include") {
            let (before, after) = (line[..at].trim_end(), &line[at + word.len()..]);
            let asks = before.ends_with("__has_");
            let after = after.strip_prefix("_next").unwrap_or(after).trim_start();
            let rest = if asks {
                // Without a parenthesis the text tests whether `__has_include` exists.
                let Some(rest) = after.strip_prefix('(') else { continue };
                rest.trim_start()
            } else if before.ends_with('#') || before.ends_with("%:") {
                after
            } else if before.contains(['#', '%']) && before.ends_with("*/") {
                return None;
            } else {
                continue;
            };
            let name = match rest.as_bytes().first() {
                Some(b'"') => rest[1..].split_once('"'),
                Some(b'<') => rest[1..].split_once('>'),
                _ => None,
            };
            names.push(name?.0.to_owned());
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn directives_are_found_in_all_their_forms() {
        let text = "#include <a.h>\n  #  include \"b/c.h\" // why\n%:include <d>\n#inc\\\nlude <e.h>\n\
                    #if defined(__has_include) && __has_include(<f.h>)\n#include_next <g.h>\n\
                    int include = 1; // \"no.h\"\n";
        assert_eq!(included(text).unwrap(), ["a.h", "b/c.h", "d", "e.h", "f.h", "g.h"]);
        assert_eq!(included("#include MACRO\n"), None);
        assert_eq!(included("# /* odd */ include <a.h>\n"), None);
    }

    #[test]
    fn options_name_folders_and_files() {
        let options = ["--include-path=a", "-Ib", "-I", "c", "-I=d", "--pre-include=e.h", "-include", "f.h"];
        let search = Search::of(&strings(&options)).unwrap();
        assert_eq!(search.folders, ["a", "b", "c", "d"].map(PathBuf::from));
        assert_eq!(search.names, ["e.h", "f.h"]);
        assert_eq!(Search::of(&strings(&["--use_fast_math", "-DX=1"])), Some(Search::default()));
        for option in ["--options-file=x", "-optf", "--time=x", "--create-pch=x", "-pch", "--pch-dir=x"] {
            assert_eq!(Search::of(&strings(&[option])), None, "{option}");
        }
    }

    #[test]
    fn files_are_followed_through_folders_and_each_other() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let first = write("one/first.h", "#include \"second.h\"\n#include <first.h>");
        let second = write("one/second.h", "#include <third.h>");
        let third = write("two/third.h", "");
        write("two/unused.h", "");
        let options = ["one", "two"].map(|folder| format!("-I{}", root.path().join(folder).display()));
        let found = files("x.cu", ["#include <first.h>\n#include <absent.h>"], &options, &[]).unwrap();
        assert!(found.keys().eq([&first, &second, &third]), "{found:?}");

        write("two/third.h", "#include NAME");
        assert_eq!(files("x.cu", ["#include <first.h>"], &options, &[]), None);

        // A folder of CUDA ends the search.
        let cuda = [root.path().join("two")];
        let found = files("x.cu", ["#include <first.h>"], &options, &cuda).unwrap();
        assert!(found[&third].starts_with(b"13 SystemTime"), "{found:?}");
    }
}
