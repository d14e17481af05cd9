//! `orin info` on the boards of the family.

use std::process::{Command, Output};

use serde_json::Value;

fn info(board: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orin"));
    command
        .args(["info", "--device", "sim", "--json"])
        .env("ORIN_SIM_BOARD", board)
        .env_remove("ORIN_SIM_SETTINGS");
    command.output().unwrap()
}

#[test]
fn a_variable_selects_the_board() {
    for (board, sms, tpcs, name) in [
        ("", 16, 8, "agx-64:maxn"),
        ("agx-64:30w", 8, 4, "agx-64:30w"),
        ("agx-32", 14, 7, "agx-32:maxn"),
        ("nano-4", 4, 2, "nano-4:10w"),
    ] {
        let output = info(board);
        assert!(output.status.success(), "{output:?}");
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&rows["sm_count"], &rows["tpc_count"]), (&sms.into(), &tpcs.into()), "{board}");
        assert!(rows["board"].as_str().unwrap().starts_with(name), "{rows}");
    }
    let output = info("nano");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && text.contains("ORIN_SIM_BOARD: `nano` is not a board"),
        "{text}"
    );
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_orin"));
    let output = doctor.args(["doctor", "--device", "sim"]).env("ORIN_SIM_BOARD", "nano").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.matches("known are").count() == 1, "{text}");
}
