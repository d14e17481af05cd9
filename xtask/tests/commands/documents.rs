//! Pages of `docs/` against the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page(name: &str) -> String {
    fs::read_to_string(workspace().join("docs").join(name)).unwrap()
}

/// The text of every Rust file below a folder.
fn sources(folder: &Path, texts: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, texts);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push(fs::read_to_string(path).unwrap());
        }
    }
}

/// The texts of all products, and of the script that reads a variable.
fn products() -> Vec<String> {
    let mut texts = vec![fs::read_to_string(workspace().join(".ci/headers")).unwrap()];
    for folder in
        ["crates", "xtask/src", "xtask/orin-dev/src", "benches/src", "tests", "examples", "fuzz/src"]
    {
        sources(&workspace().join(folder), &mut texts);
    }
    texts
}

/// String literals of a source that can name an environment variable of this project.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let prefixes =
        ["NVGPU_", "ORIN_SIM_", "ORIN_CUDA_", "ORIN_LIBCUDA", "L4T_HEADERS", "NO_COLOR", "SOURCE_DATE_EPOCH"];
    let is_name = move |name: &&str| {
        name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
            && prefixes.iter().any(|prefix| name.starts_with(*prefix))
    };
    text.split('"').filter(is_name)
}

#[test]
fn the_page_of_variables_has_all_that_the_sources_read() {
    let page = page("environment.md");
    let texts = products();
    let readers: Vec<&String> = texts.iter().filter(|text| text.contains("env::var")).collect();
    let read: BTreeSet<&str> = readers.iter().flat_map(|text| names(text)).collect();
    assert!(read.len() > 15, "{read:?}");
    for name in &read {
        assert!(page.contains(&format!("`{name}`")), "docs/environment.md has no {name}");
    }
    // And none that nothing reads.
    let listed = page.split('`').filter(|word| names(word).next().is_some());
    for name in listed {
        let literals = [format!("\"{name}\""), format!("\"${name}\"")];
        let reads = |text: &String| literals.iter().any(|literal| text.contains(literal));
        assert!(texts.iter().any(reads), "nothing reads {name}");
    }
}

#[test]
fn the_page_for_users_of_cuda_names_what_exists() {
    let texts = products();
    let page = page("coming-from-cuda.md");
    let ours = page.lines().filter_map(|line| line.strip_prefix('|')?.rsplit('|').nth(1));
    let calls: BTreeSet<&str> = ours
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter_map(|code| code.split_once("::"))
        .map(|(_, rest)| rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap())
        .collect();
    assert!(calls.len() > 20, "{calls:?}");
    for call in calls.iter().filter(|call| call.starts_with(|c: char| c.is_lowercase())) {
        let definition = format!("pub fn {call}");
        let unsafe_definition = format!("pub unsafe fn {call}");
        let exists = |text: &String| text.contains(&definition) || text.contains(&unsafe_definition);
        assert!(texts.iter().any(exists), "there is no {call}");
    }
}

#[test]
fn the_page_of_orin_begins_with_links_to_all_commands() {
    let page = page("orin.md");
    let (list, _) = page.split_once("<!-- orin:").unwrap();
    let commands: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## `orin ")).collect();
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands.iter().map(|command| command.trim_end_matches('`')) {
        assert!(
            list.contains(&format!("[`{command}`](#orin-{command})")),
            "docs/orin.md does not list {command}"
        );
    }
    assert_eq!(list.matches("](#orin-").count(), commands.len());
}
