use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::thread;

use rustix::fs::{FileType, Mode};
use tempfile::TempDir;

use super::*;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Names in a folder, sorted.
fn names(folder: &TempDir) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn prepare(path: &Path) -> Output {
    Output::prepare(path).unwrap()
}

fn refused(path: impl AsRef<OsStr>) -> String {
    Output::prepare(path.as_ref()).unwrap_err().to_string()
}

#[test]
fn a_file_is_replaced_only_when_it_is_written() {
    let folder = folder();
    let path = folder.path().join("report.json");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let output = prepare(&path);
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(&folder).len()), ("old", 1));
    output.write(b"new").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640, "the permissions stay");
    assert_eq!(names(&folder), ["report.json"], "no unfinished file is left");
}

#[test]
fn symlinks_are_followed_and_stay() {
    let folder = folder();
    let (file, link, dangling) =
        (folder.path().join("file"), folder.path().join("link"), folder.path().join("dangling"));
    fs::write(&file, "old").unwrap();
    symlink("file", &link).unwrap();
    symlink("later", &dangling).unwrap();
    write_file(&link, "new").unwrap();
    write_file(&dangling, "made").unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::symlink_metadata(&dangling).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    assert_eq!(fs::read_to_string(folder.path().join("later")).unwrap(), "made");
    symlink("circle", folder.path().join("circle")).unwrap();
    assert!(refused(folder.path().join("circle")).contains("symbolic links"));
}

#[test]
fn devices_and_pipes_are_written_and_stay() {
    write_file("/dev/null", "x").unwrap();
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let full = anyhow::Error::from(prepare(Path::new("/dev/full")).write(b"x").unwrap_err());
    assert_eq!(format!("{full:#}"), "writing /dev/full: No space left on device (os error 28)");
    assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());

    let folder = folder();
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let reader = thread::spawn({
        let fifo = fifo.clone();
        move || fs::read_to_string(fifo).unwrap()
    });
    prepare(&fifo).write(b"through").unwrap();
    assert_eq!(reader.join().unwrap(), "through");
    assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
}

#[test]
fn an_open_descriptor_is_written_in_place() {
    let folder = folder();
    let path = folder.path().join("log");
    let file = File::create(&path).unwrap();
    let before = file.metadata().unwrap().ino();
    let link = folder.path().join("link");
    symlink(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)), &link).unwrap();
    prepare(&link).write(b"x").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), before, "the descriptor's file is the same");
    assert_eq!(fs::read_to_string(&path).unwrap(), "x");
}

#[test]
fn a_place_that_cannot_be_written_is_refused_with_the_reason() {
    let folder = folder();
    assert!(refused(folder.path()).ends_with("cannot be written: it is a folder"));
    let missing = refused(folder.path().join("no/such/report.json"));
    assert!(missing.contains("there is no folder") || missing.contains("No such file"), "{missing}");
    assert!(refused(folder.path().join("new/")).contains("no name of a file"));
    assert!(refused("/proc/report.json").contains("/proc/report.json cannot be written: "));
    assert!(names(&folder).is_empty());
}

#[test]
fn only_a_dash_is_standard_output() {
    let folder = folder();
    assert!(Output::prepare("-").unwrap().is_stdout());
    for path in [folder.path().join("-"), folder.path().join("file"), "/dev/null".into()] {
        assert!(!Output::prepare(&path).unwrap().is_stdout(), "{}", path.display());
    }
}

#[test]
fn one_place_takes_one_output() {
    let folder = folder();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    symlink("file", &link).unwrap();
    let error = Output::prepare_all([&file, &link]).unwrap_err();
    assert!(matches!(error, OutputError::Twice { .. }), "{error}");
    let error = Output::prepare_all(["-", "-"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "two outputs would be written to standard output: choose another file for one"
    );
    assert!(Output::prepare_all(["/dev/null", "/dev/null"]).is_ok());
}

#[test]
fn if_one_output_fails_no_file_changes() {
    let folder = folder();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    fs::write(&old, "old").unwrap();
    let outputs = Output::prepare_all([old.as_path(), &new, Path::new("/dev/full")]).unwrap();
    let pairs: Vec<(&Output, &[u8])> = outputs.iter().map(|output| (output, &b"contents"[..])).collect();
    assert!(write_all(&pairs).unwrap_err().to_string().contains("/dev/full"));
    assert_eq!((fs::read_to_string(&old).unwrap().as_str(), names(&folder)), ("old", vec!["old".to_owned()]));
}

#[test]
fn a_failure_of_the_last_replacement_undoes_the_earlier_ones() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("old"), "old").unwrap();
    let outputs = Output::prepare_all([path("old"), path("new"), path("taken")]).unwrap();
    // Somebody makes a folder of that name while the command works.
    fs::create_dir_all(path("taken/in use")).unwrap();
    let pairs: Vec<(&Output, &[u8])> = outputs.iter().map(|output| (output, &b"contents"[..])).collect();
    write_all(&pairs).unwrap_err();
    assert_eq!(fs::read_to_string(path("old")).unwrap(), "old");
    assert_eq!(names(&folder), ["old", "taken"]);
}

/// Names the folder for [`in_a_mount_namespace`].
const FOLDER: &str = "ORIN_CLI_TEST_FOLDER";

/// Runs this test again in a process that has a file system mounted at `small` of a folder, and the file `own`
/// mounted over the file `mounted`. Skips it, with a message, if the process may not mount.
fn in_a_mount_namespace(test: &str) {
    let folder = folder();
    let mount = "mkdir small && mount -t tmpfs -o size=64k none small && \
                 touch mounted own small/file && mount --bind own mounted && mount --bind small/file small/file && \
                 exec \"$0\" --exact \"$1\" --nocapture";
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]).current_dir(folder.path());
    let may_mount = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"])
        .status();
    if !may_mount.is_ok_and(|status| status.success()) {
        println!("SKIPPED: this process may not mount");
        return;
    }
    let own = std::env::current_exe().unwrap();
    command.args(["sh", "-c", mount]).arg(own).arg(test).env(FOLDER, folder.path());
    assert!(command.status().unwrap().success());
    assert_eq!(fs::read_to_string(folder.path().join("own")).unwrap(), "old", "restored by the last step");
}

#[test]
fn a_mount_point_is_overwritten_in_place() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return in_a_mount_namespace("output::tests::a_mount_point_is_overwritten_in_place");
    };
    let (mounted, own) = (folder.join("mounted"), folder.join("own"));
    fs::write(&mounted, "an older and longer text").unwrap();
    write_file(&mounted, "new").unwrap();
    assert_eq!(fs::read_to_string(&own).unwrap(), "new");

    // The disk is too small for the file beside it.
    let small = folder.join("small/file");
    fs::write(&small, "old").unwrap();
    write_file(&small, vec![b'x'; 128 << 10]).unwrap_err();
    assert_eq!(fs::read_to_string(&small).unwrap(), "old");
    // It is too small for the file itself.
    let error = overwrite(&small, &vec![b'x'; 128 << 10]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(fs::read_to_string(&small).unwrap(), "old");

    // Another output fails later.
    fs::write(&mounted, "old").unwrap();
    let outputs = Output::prepare_all([&mounted, &folder.join("taken")]).unwrap();
    fs::create_dir_all(folder.join("taken/in use")).unwrap();
    let pairs: Vec<(&Output, &[u8])> = outputs.iter().map(|output| (output, &b"contents"[..])).collect();
    write_all(&pairs).unwrap_err();
    assert_eq!(fs::read_to_string(&own).unwrap(), "old");
    assert_eq!(fs::read_to_string(&mounted).unwrap(), "old");
}
