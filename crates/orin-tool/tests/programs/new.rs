//! `orin new`: the files are those of the package `examples/template`, which the workspace builds and tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use orin_cli::testing::Program;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn orin(folder: &Path, line: &[&str]) -> Result<String, String> {
    let output = Program::new(env!("CARGO_BIN_EXE_orin"), folder)
        .env("NVGPU_NVRTC", "/no/such/library")
        .command(&[&["new"], line].concat())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// The files of a package, without those of git and of builds.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with(".git") || path.ends_with("target") {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else {
                let content = fs::read(&path).unwrap();
                found.insert(path.strip_prefix(folder).unwrap().to_owned(), content);
            }
        }
    }
    found
}

#[test]
fn the_package_is_the_template_under_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let root = root();
    let said = orin(folder.path(), &["some/my-median", "--path", root.to_str().unwrap()]).unwrap();
    for line in ["  cd some/my-median\n", "  cargo test ", "pip install nvidia-cuda-nvrtc-cu12"] {
        assert!(said.contains(line), "{said}");
    }
    let package = folder.path().join("some/my-median");
    let (made, template) = (files(&package), files(&root.join("examples/template")));
    assert!(made.keys().eq(template.keys()), "{:?}\n{:?}", made.keys(), template.keys());
    for (path, content) in &template {
        let Ok(text) = str::from_utf8(content) else {
            assert_eq!(&made[path], content, "{}", path.display());
            continue;
        };
        let text = text.replace("orin-template", "my-median").replace("orin_template", "my_median");
        let written = str::from_utf8(&made[path]).unwrap();
        if path == Path::new("Cargo.toml") {
            let text = text.replace("../../crates", root.join("crates").to_str().unwrap());
            assert!(written.starts_with(&text) && written.contains("orin-sim.opt-level = 2"), "{written}");
        } else {
            assert_eq!(written, text, "{}", path.display());
        }
    }
    if Command::new("git").arg("--version").output().is_ok() {
        assert!(package.join(".git").is_dir());
        // Inside of a repository there is no other.
        orin(&package, &["inner"]).unwrap();
        let inner = files(&package.join("inner"));
        assert!(!package.join("inner/.git").exists() && inner.contains_key(Path::new(".gitignore")));
        let manifest = str::from_utf8(&inner[Path::new("Cargo.toml")]).unwrap();
        let git = concat!("tegra-hcq = { git = \"", env!("CARGO_PKG_REPOSITORY"), "\" }\n");
        assert!(manifest.contains(git) && manifest.contains("\n[workspace]\n"), "{manifest}");
        fs::remove_dir_all(package.join("inner")).unwrap();
    }

    // Cargo accepts the package with the workspace's versions, without a network.
    fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock")).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    let output = cargo
        .args(["tree", "--offline", "--edges=normal,build", "--depth=1"])
        .current_dir(&package)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let tree = String::from_utf8(output.stdout).unwrap();
    for line in ["my-median v0.1.0", "tegra-hcq v", "orin-build v"] {
        assert!(tree.contains(line), "{tree}");
    }
}

/// `.ci/new` runs their programs and tests.
#[test]
fn projects_in_other_languages_have_the_same_parts() {
    let folder = tempfile::tempdir().unwrap();
    let template = files(&root().join("examples/template"));
    for (option, test, step) in [
        ("--python", "tests/test_saxpy.py", "  python3 saxpy.py "),
        ("--c", "tests/test_saxpy.c", "  make check    # on the software Orin"),
    ] {
        let name = format!("3 {option}");
        let said = orin(folder.path(), &[&name, option, "--vcs", "git"]).unwrap();
        assert!(said.contains(step) && said.contains("/blob/main/docs/install.md\n"), "{said}");
        let made = files(&folder.path().join(&name));
        let text = |path: &str| str::from_utf8(&made[Path::new(path)]).unwrap();
        assert!(text("README.md").starts_with(&format!("# {name}\n")), "{}", text("README.md"));
        assert!(text("README.md").contains(concat!(" ", env!("CARGO_PKG_REPOSITORY"), "/blob/main/")));
        for path in ["kernels/saxpy.cu", "kernels/saxpy.sm_87.cubin"] {
            assert_eq!(made[Path::new(path)], template[Path::new(path)]);
        }
        for (line, path) in [("saxpy", test), ("  test:\n", ".github/workflows/ci.yml")] {
            assert!(text(path).contains(line), "{path}");
        }
        assert!(made.contains_key(Path::new(".gitignore")), "{option}");
        assert!(made.values().all(|content| !String::from_utf8_lossy(content).contains("orin-template")));
    }
    for line in
        [&["x", "--python", "--c"][..], &["x", "--c", "--path", "."], &["x", "--python", "--name", "y"]]
    {
        assert!(orin(folder.path(), line).unwrap_err().contains("cannot be used with"), "{line:?}");
    }
}

#[test]
fn a_refusal_says_why_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("old")).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for (line, words) in [
        (&["old"][..], "old exists already: choose another folder"),
        (&["file"], "file exists already"),
        (&["file/x"], "file/x cannot be made: "),
        (
            &["3d"],
            "the name \"3d\" must begin with a letter (a to z) or an underscore; name the package with --name",
        ),
        (&["x", "--name", "fn"], "the name \"fn\" is a word of Rust\n"),
        (&["."], "the name \"\" is empty; name the package with --name"),
        (&["x", "--path", "absent"], "--path absent: absent/crates: No such file"),
        (&["x", "--vcs", "hg"], "[possible values: git, none]"),
        (&[], "<NAME>"),
    ] {
        let error = orin(folder.path(), line).unwrap_err();
        assert!(error.starts_with("error: ") && error.contains(words), "{line:?}: {error}");
    }
    fs::create_dir(folder.path().join("crates")).unwrap();
    let error = orin(folder.path(), &["x", "--path", "."]).unwrap_err();
    assert!(
        error.contains("--path .: no checkout of ") && error.contains("no crate tegra-hcq in it"),
        "{error}"
    );
    assert!(!folder.path().join("x").exists());
    orin(folder.path(), &["3d", "--name", "three-d", "--vcs", "none"]).unwrap();
    assert!(!folder.path().join("3d/.git").exists() && !folder.path().join("3d/.gitignore").exists());
    assert!(
        fs::read_to_string(folder.path().join("3d/src/main.rs")).unwrap().contains("use three_d::Saxpy;")
    );
}
