//! The program with the synthetic camera, and with wrong input.

use orin_cli::ExitStatus::{Success, Usage};
use orin_cli::testing::Program;

fn program(folder: &std::path::Path) -> Program {
    Program::new(env!("CARGO_BIN_EXE_camera"), folder)
}

#[test]
fn frames_reach_the_network_and_wrong_input_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    program(folder.path()).check_all(&[
        (&["--device", "sim", "--frames", "3", "--width", "64", "--height", "48", "--rate", "50"], Success),
        (&["--frames", "0"], Usage),
        (&["--device", "sim", "--width", "33"], Usage),
        (&["--camera", "/dev/null"], Usage),
        (&["--camera", "/no/such/node"], Usage),
    ]);
}
