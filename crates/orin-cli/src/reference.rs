//! Pages of the documentation that list the commands of a program, from the same source as its `--help`.

use std::fmt::Write;
use std::path::Path;

use clap::{Arg, ArgAction, Command};

/// Environment variable that makes [`check_page`] write the page.
const UPDATE: &str = "NVGPU_UPDATE_DOCS";

/// Compares the part of a page between `<!-- NAME: ... -->` and `<!-- NAME: end -->` with the commands of a program.
/// With `NVGPU_UPDATE_DOCS=1` in the environment it writes the part.
///
/// # Panics
///
/// If the page has no such part, cannot be read or written, or differs.
pub fn check_page(page: &Path, name: &str, command: Command) {
    let path = page.display();
    let old = std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{path}: {error}"));
    let new = updated(&old, name, &markdown(command)).unwrap_or_else(|| panic!("{path} has no part {name}"));
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(page, new).unwrap_or_else(|error| panic!("{path}: {error}"));
        return;
    }
    let line = (1..).zip(old.lines().zip(new.lines())).find(|(_, (old, new))| old != new);
    assert!(
        old == new,
        "{path} is out of date: {UPDATE}=1 cargo xtask commands writes it; first difference: {line:?}"
    );
}

/// The page with a new part; `None` if it has no such part.
fn updated(page: &str, name: &str, part: &str) -> Option<String> {
    let (before, rest) = page.split_once(&format!("<!-- {name}: "))?;
    let (comment, rest) = rest.split_once("-->\n")?;
    let end = format!("<!-- {name}: end -->");
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}<!-- {name}: {comment}-->\n\n{part}{end}{after}"))
}

/// The commands that a program shows in its help, each under a heading.
fn markdown(mut command: Command) -> String {
    command.build();
    let mut text = String::new();
    for inner in shown(&command) {
        describe(&mut text, inner, 2);
    }
    text
}

/// The subcommands that the help lists.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
}

fn describe(text: &mut String, command: &Command, level: usize) {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let _ = writeln!(text, "{} `{name}`\n", "#".repeat(level));
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        let _ = writeln!(text, "{}.\n", escaped(without_stop(&about.to_string())));
    }
    // The usage of a command with subcommands says nothing.
    if shown(command).next().is_none() {
        let usage = command.clone().render_usage().to_string();
        let _ = writeln!(text, "```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim());
        let arguments: Vec<&Arg> = command.get_arguments().filter(|argument| is_shown(argument)).collect();
        for argument in &arguments {
            let _ = writeln!(text, "{}", item(argument));
        }
        if !arguments.is_empty() {
            text.push('\n');
        }
    }
    if let Some(after) = command.get_after_long_help().or(command.get_after_help()) {
        let after = after.to_string();
        let is_laid_out = after.contains("\n ");
        let _ = match is_laid_out {
            true => writeln!(text, "```text\n{}\n```\n", after.trim_end()),
            false => writeln!(text, "{}\n", escaped(&after)),
        };
    }
    for inner in shown(command) {
        describe(text, inner, level + 1);
    }
}

fn is_shown(argument: &Arg) -> bool {
    let is_for_all = matches!(
        argument.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    );
    !argument.is_hide_set() && !is_for_all
}

/// One argument as an item of a list.
fn item(argument: &Arg) -> String {
    let short = argument.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    // An option without a long name shows its short one.
    let short = if argument.get_long().is_some() { short } else { String::new() };
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = format!("- `{short}{argument}`: {}", escaped(without_stop(&help)));
    let takes_values = argument.get_action().takes_values();
    let possible: Vec<_> =
        argument.get_possible_values().into_iter().filter(|value| !value.is_hide_set()).collect();
    let is_listed = takes_values && !possible.is_empty() && !argument.is_hide_possible_values_set();
    let is_explained = possible.iter().any(|value| value.get_help().is_some());
    if is_listed && !is_explained {
        let names: Vec<_> = possible.iter().map(|value| format!("`{}`", value.get_name())).collect();
        let _ = write!(text, ": {}", names.join(", "));
    }
    let defaults: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if takes_values && !defaults.is_empty() && !argument.is_hide_default_value_set() {
        let _ = write!(text, " (default `{}`)", defaults.join(" "));
    }
    if let Some(variable) = argument.get_env() {
        let _ = write!(text, " (environment `{}`)", variable.to_string_lossy());
    }
    for value in possible.iter().filter(|_| is_listed && is_explained) {
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = write!(text, "\n  - `{}`: {}", value.get_name(), escaped(&help));
    }
    text
}

/// The text without the full stop at its end, as clap shows it.
fn without_stop(text: &str) -> &str {
    text.strip_suffix('.').filter(|rest| !rest.ends_with('.')).unwrap_or(text)
}

/// Help text as Markdown: outside of code, characters with a meaning there are escaped.
fn escaped(text: &str) -> String {
    let mut result = String::new();
    let mut in_code = false;
    for character in text.chars() {
        in_code ^= character == '`';
        if !in_code && matches!(character, '<' | '*' | '[') {
            result.push('\\');
        }
        result.push(character);
    }
    result
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use clap::builder::PossibleValue;

    use super::*;

    #[test]
    fn commands_are_listed_as_the_help_lists_them() {
        let mode =
            Arg::new("mode").long("mode").short('m').help("A <mode> of `a*b`").value_parser(["x", "y"]);
        let way = PossibleValue::new("up").help("Upwards");
        let way = Arg::new("way").long("way").help("The way.").default_value("up").value_parser([way]);
        let flag = Arg::new("all").long("all").action(ArgAction::SetTrue).help("Do all ...");
        let own = Command::new("own").about("Does it").arg(mode.default_value("x")).arg(flag);
        let own = own.arg(way).arg(Arg::new("file").required(true).help("The file"));
        let own = own.arg(Arg::new("secret").long("secret").hide(true)).after_help("Examples:\n  own x");
        let outer = Command::new("outer").about("More").subcommand(Command::new("inner"));
        let program = Command::new("program").subcommand(own).subcommand(outer);
        let program = program.subcommand(Command::new("hidden").hide(true));
        let page = "# Page\n\n<!-- all: generated -->\nold\n<!-- all: end -->\n\nend\n";
        let wanted = "# Page\n\n<!-- all: generated -->\n\n## `program own`\n\nDoes it.\n\n\
            ```text\nprogram own [OPTIONS] <file>\n```\n\n\
            - `-m, --mode <mode>`: A \\<mode> of `a*b`: `x`, `y` (default `x`)\n- `--all`: Do all ...\n\
            - `--way <way>`: The way (default `up`)\n  - `up`: Upwards\n\
            - `<file>`: The file\n\n```text\nExamples:\n  own x\n```\n\n\
            ## `program outer`\n\nMore.\n\n### `program outer inner`\n\n```text\nprogram outer inner\n```\n\n\
            <!-- all: end -->\n\nend\n";
        assert_eq!(updated(page, "all", &markdown(program.clone())).unwrap(), wanted);
        assert_eq!(updated("no part", "all", ""), None);

        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), wanted).unwrap();
        check_page(file.path(), "all", program.clone());
        std::fs::write(file.path(), wanted.replace("Does it", "Did it")).unwrap();
        let stale = std::panic::catch_unwind(AssertUnwindSafe(|| check_page(file.path(), "all", program)));
        assert_eq!(stale.is_err(), std::env::var_os(UPDATE).is_none(), "a stale page is an error");
    }
}
