//! The completion scripts in the shells themselves. A test without its shell says so and passes.

use std::path::Path;
use std::process::Command;

use orin_cli::testing::Program;

/// What a shell proposes for command lines that end in the word to complete.
fn proposals(shell: &str, ask: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let script =
        Program::new(env!("CARGO_BIN_EXE_orin"), folder.path()).command(&["completions", shell]).output();
    std::fs::write(folder.path().join("_orin"), script.unwrap().stdout).unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_orin")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(shell);
    command.args(["-c", ask]).current_dir(folder.path()).env("PATH", path).env("HOME", folder.path());
    match command.output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && errors.is_empty(), "{shell}: {errors}");
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            println!("SKIPPED: {shell}: {error}");
            None
        }
    }
}

#[test]
fn each_shell_completes_commands_options_and_values() {
    let cases = [
        ("orin comp", &["compile", "completions"][..]),
        ("orin llm r", &["run", "random"]),
        ("orin compile --line", &["--line-info"]),
        ("orin compile --arch sm_8", &["sm_80", "sm_87"]),
        ("orin new --vcs ", &["git", "none"]),
        ("orin completions z", &["zsh"]),
        ("orin info --device ", &["auto", "nvgpu", "nvrm", "sim"]),
        ("orin check --tool ", &["memcheck", "warpcheck", "all"]),
        ("orin serve --board ", &["agx-64", "nano-4"]),
        ("orin serve --kernel r39", &["r39.2"]),
        ("orin llm random --shape llama", &["llama-1b"]),
        ("orin man --command ", &[]),
        ("orin serve --seed ", &[]),
    ];
    for (line, words) in cases {
        // Outside of a completion, `compopt` is an error.
        let bash = format!(
            "compopt() {{ :; }}; source _orin; COMP_LINE='{line}'; COMP_WORDS=({line}); \
             [[ $COMP_LINE == *' ' ]] && COMP_WORDS+=(''); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _orin orin \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let fish = format!("source _orin; complete --do-complete '{line}'");
        for (shell, ask) in [("bash", &bash), ("fish", &fish)] {
            // Clap's scripts for fish do not complete arguments without an option.
            let is_argument = line == "orin completions z";
            let Some(said) = (if shell == "fish" && is_argument { None } else { proposals(shell, ask) })
            else {
                continue;
            };
            let found: Vec<&str> = said.lines().filter_map(|line| line.split('\t').next()).collect();
            for word in words {
                assert!(found.contains(word), "{shell}, {line:?}: {found:?}");
            }
            assert!(!found.contains(&"_orin"), "{shell}, {line:?} offers the file here: {found:?}");
        }
    }
    // Bash makes words of `=`.
    for (words, current, previous) in [("--check =", "", "--check"), ("--check = mem", "mem", "=")] {
        let ask = format!(
            "compopt() {{ :; }}; source _orin; COMP_WORDS=(orin run {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _orin orin '{current}' '{previous}'; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        if let Some(said) = proposals("bash", &ask) {
            assert!(said.lines().any(|line| line == "memcheck"), "{words:?}: {said}");
        }
    }
    // Zsh has no call for it; it reads the script and defines the function.
    let zsh = "autoload -Uz compinit; compinit -u -d dump; source ./_orin; whence -w _orin";
    if let Some(said) = proposals("zsh", zsh) {
        assert_eq!(said, "_orin: function\n");
    }
}
