//! Completion scripts and manual pages.

use std::any::TypeId;
use std::io;

use anyhow::{Context, Result};
use clap::builder::{PossibleValuesParser, StyledStr};
use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use infer::synthetic::Recipe;
use nvgpu_sys::Release;
use orin_cli::UsageError;
use orin_sim::Profile;
use orin_sim::board::BOARDS;
use orin_sim::check::Tools;
use tegra_hcq::{DeviceKind, DeviceName};

use crate::cli::Cli;
use crate::llm;

/// The completion scripts and manual pages by file name.
pub(crate) fn all() -> Result<Vec<(String, Vec<u8>)>> {
    let mut documents = vec![
        ("completions/orin.bash".to_owned(), completions(Shell::Bash)),
        ("completions/_orin".to_owned(), completions(Shell::Zsh)),
        ("completions/orin.fish".to_owned(), completions(Shell::Fish)),
    ];
    documents.extend(pages()?.into_iter().map(|(name, page)| (format!("man/{name}"), page)));
    Ok(documents)
}

/// The completion script for a shell.
pub(crate) fn completions(shell: Shell) -> Vec<u8> {
    let whole = Cli::command();
    let mut command = Command::new("orin")
        .version(env!("CARGO_PKG_VERSION"))
        .about(whole.get_about().cloned().unwrap_or_default())
        .subcommands(shown(&whole).cloned())
        .mut_subcommands(offering);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "orin", &mut script);
    match shell {
        Shell::Bash => option_with_equals(script),
        _ => script,
    }
}

/// The subcommands that the help lists.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|inner| !inner.is_hide_set())
}

/// The command with options that offer their values, and file names only where they are values.
fn offering(command: Command) -> Command {
    let offer = |arg: Arg| match values(&arg) {
        Some(values) => arg.value_parser(PossibleValuesParser::new(values)),
        None if is_word(&arg) => arg.value_hint(ValueHint::Other),
        None => arg,
    };
    command.mut_args(offer).mut_subcommands(offering)
}

/// Whether the value of an option is neither a file nor one of a few words.
fn is_word(arg: &Arg) -> bool {
    let is_free = arg.get_value_parser().possible_values().is_none();
    let takes_values = arg.get_action().takes_values() && !arg.is_positional();
    takes_values && is_free && arg.get_value_hint() == ValueHint::Unknown
}

/// The values of an option whose type has few.
fn values(arg: &Arg) -> Option<Vec<&'static str>> {
    let kind = arg.get_value_parser().type_id();
    if kind == TypeId::of::<DeviceName>() {
        let kinds = [DeviceKind::Auto, DeviceKind::Nvgpu, DeviceKind::Nvrm, DeviceKind::Sim];
        Some(kinds.map(DeviceKind::name).into())
    } else if kind == TypeId::of::<Tools>() {
        Some(Tools::names().chain(["all"]).collect())
    } else if kind == TypeId::of::<Profile>() {
        Some(BOARDS.iter().map(|board| board.name).collect())
    } else if kind == TypeId::of::<Release>() {
        Some(Release::ALL.map(Release::name).into())
    } else if kind == TypeId::of::<Recipe>() {
        Some(llm::shapes().collect())
    } else {
        None
    }
}

/// The script for bash, which also completes the value of `--option=`: bash makes three words of it.
fn option_with_equals(script: Vec<u8>) -> Vec<u8> {
    const PREVIOUS: &str = "    prev=\"$3\"\n";
    let words = "\
    if [[ \"$cur\" == = ]]; then
        cur=\"\"
    elif [[ \"$prev\" == = ]]; then
        prev=\"${COMP_WORDS[COMP_CWORD-2]}\"
    fi
";
    String::from_utf8_lossy(&script).replacen(PREVIOUS, &format!("{PREVIOUS}{words}"), 1).into_bytes()
}

/// The manual pages of the program and of all its commands, by file name.
pub(crate) fn pages() -> Result<Vec<(String, Vec<u8>)>> {
    fn add(command: &Command, words: &str, pages: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
        let name = format!("orin {words}").trim_end().replace(' ', "-");
        pages.push((format!("{name}.1"), man(words)?));
        for inner in shown(command) {
            add(inner, format!("{words} {}", inner.get_name()).trim_start(), pages)?;
        }
        Ok(())
    }
    let mut pages = Vec::new();
    add(&Cli::command(), "", &mut pages)?;
    Ok(pages)
}

/// The manual page of a command, named by its words; of the program if there are none.
pub(crate) fn man(words: &str) -> Result<Vec<u8>> {
    // The command `help` has no page.
    let mut command = Cli::command().disable_help_subcommand(true);
    // Names each command by all its words.
    command.build();
    let mut name = "orin".to_owned();
    for word in words.split_whitespace() {
        let found = command.find_subcommand(word).cloned();
        command = found.ok_or_else(|| {
            let known: Vec<_> = shown(&command).map(Command::get_name).collect();
            UsageError(format!("{name} has no command `{word}`; it has: {}", known.join(", ")))
        })?;
        name = format!("{name}-{word}");
    }
    page(command).context("rendering the manual page")
}

fn page(mut command: Command) -> io::Result<Vec<u8>> {
    let synopsis = synopsis(&mut command);
    let notes = command.get_after_long_help().or(command.get_after_help()).map(notes);
    let has_arguments = command.get_arguments().any(|arg| !arg.is_hide_set());
    let (has_commands, has_version) = (shown(&command).next().is_some(), command.get_version().is_some());
    let man = Man::new(command).source(concat!("orin ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis.to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    if has_arguments {
        man.render_options_section(&mut page)?;
    }
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    notes.iter().try_for_each(|notes| notes.to_writer(&mut page))?;
    if has_version {
        man.render_version_section(&mut page)?;
    }
    // Each section begins with the definitions of the whole page.
    let definitions = Roff::new().render();
    let sections = String::from_utf8_lossy(&page).replace(&definitions, "");
    Ok((definitions + &sections).into_bytes())
}

/// The usage with the names of values.
fn synopsis(command: &mut Command) -> Roff {
    let name = command.get_bin_name().unwrap_or("orin").to_owned();
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let rest = usage.strip_prefix(&name).unwrap_or(usage);
    // A program's own options can be told apart from the command's by two dashes.
    let rest = match rest.contains("-- <PROGRAM>") {
        true => rest.to_owned(),
        false => rest.replace("<PROGRAM>", "[--] <PROGRAM>"),
    };
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([bold(name), roman(rest)]);
    roff
}

/// The text after the options, in sections; lines that begin with a space are kept as they are.
fn notes(text: &StyledStr) -> Roff {
    let mut roff = Roff::new();
    let mut section = "";
    for paragraph in text.to_string().split("\n\n") {
        let wanted = match paragraph {
            _ if paragraph.starts_with("Example") => "EXAMPLES",
            _ if paragraph.starts_with("Exit code") || paragraph.starts_with("The exit code") => {
                "EXIT STATUS"
            }
            _ => "NOTES",
        };
        match wanted == section {
            true => roff.control("PP", []),
            false => roff.control("SH", [wanted]),
        };
        section = wanted;
        let mut is_kept = false;
        for line in paragraph.lines().filter(|line| !matches!(*line, "Examples:" | "Example:")) {
            if line.starts_with(' ') != is_kept {
                is_kept = !is_kept;
                roff.control(if is_kept { "nf" } else { "fi" }, []);
            }
            roff.text([roman(line)]);
        }
        if is_kept {
            roff.control("fi", []);
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_completions() {
        let documents = all().unwrap();
        let text = |name: &str| {
            let (_, content) = documents.iter().find(|(known, _)| known == name).unwrap();
            String::from_utf8(content.clone()).unwrap()
        };
        assert!(text("man/orin.1").contains(".TH orin 1"), "{}", text("man/orin.1"));
        for (name, content) in &documents {
            let content = String::from_utf8_lossy(content);
            assert!(!content.contains("```") && !content.contains("use clap"), "{name} has code: {content}");
            let internal = ["bring-up-stage", "bring\\-up\\-stage"];
            assert!(internal.iter().all(|word| !content.contains(word)), "{name} has an internal command");
        }
        // An installed program's user has no checkout: pages have their address.
        for (name, content) in &documents {
            let content = String::from_utf8_lossy(content).replace('\\', "");
            for (at, path) in content.match_indices("docs/") {
                assert!(
                    content[..at].ends_with("/blob/main/"),
                    "{name}: {}",
                    &content[at..content.len().min(at + 30)]
                );
                let page = content[at..].split(".md").next().unwrap_or(path);
                let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../{page}.md"));
                assert!(page.is_file(), "{name}: {}", page.display());
            }
        }
        assert!(text("man/orin-check.1").replace('\\', "").contains("See https://github.com/"));
        assert!(text("man/orin-dmesg.1").contains("\\-\\-watch"));
        for command in shown(&Cli::command()).map(Command::get_name) {
            assert!(text("completions/orin.bash").contains(command), "{command}");
            assert!(documents.iter().any(|(name, _)| *name == format!("man/orin-{command}.1")), "{command}");
        }
        assert!(text("man/orin-decode-qmd.1").contains(".TH orin-decode-qmd 1"));
        assert!(man("decode xyz").unwrap_err().is::<UsageError>());
    }

    #[test]
    fn pages_keep_examples_as_they_are() {
        let page = |words| String::from_utf8(man(words).unwrap()).unwrap();
        let run = page("run");
        let example = ".SH EXAMPLES\nExamples, y = 2 * x + y for 1,000 floats:\n.nf\n  orin run \\-\\-cubin \
                       saxpy.cubin \\-\\-kernel saxpy \\-\\-grid 4 \\-\\-block 256 \\\\\n      \\-\\-arg f32:2";
        assert!(run.contains(example), "{run}");
        assert!(run.contains(".fi\n.SH \"EXIT STATUS\"\nExit codes: 0 success"), "{run}");
        assert!(run.contains(".SH SYNOPSIS\n\\fBorin run\\fR [OPTIONS] "), "{run}");
        assert!(run.contains("\\-\\-kernel <KERNEL>") && run.matches(".ie").count() == 1, "{run}");
        assert!(page("check").contains("[OPTIONS] [\\-\\-] <PROGRAM>..."), "{}", page("check"));
        assert!(page("record").contains(" \\-\\- <PROGRAM>..."), "{}", page("record"));
        // Each page that another one names exists.
        let names: Vec<_> = pages().unwrap().into_iter().map(|(name, _)| name.replace(".1", "(1)")).collect();
        for words in ["", "decode", "llm"] {
            let page = page(words).replace('\\', "");
            let named: Vec<_> = page.lines().filter(|line| line.ends_with("(1)")).collect();
            assert!(!named.is_empty() && named.iter().all(|name| names.iter().any(|known| known == name)));
        }
    }
}
