//! `orin-dev`: the project's commands that need the driver or the software Orin: device tests, benchmarks, kernels,
//! packs. `cargo xtask` runs them under the same names.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use xtask::workspace::success;

mod bench;
mod check_headers;
mod commit;
mod compare_board;
mod coverage;
mod dist;
mod kernels;
mod silicon;
mod test_device;
mod vendor_tools;

/// Device tests, benchmarks, kernels and packs of the Orin GPU driver workspace.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    after_help = "Exit codes: 0 success, 1 failure, 2 usage error, 130 interrupted."
)]
struct Options {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run the device tests on a board or on the software Orin; exit code 1 if one fails
    TestDevice(test_device::Options),
    /// Measure launches, graphs, copies, memory, kernels and start-up; exit code 1 if a case fails
    Bench(bench::Options),
    /// Compare the ioctl tables with the headers of an L4T release
    CheckHeaders(check_headers::Options),
    /// Rebuild kernels/*.cubin from kernels/*.cu with NVRTC 12.6
    Kernels(kernels::Options),
    /// List the instructions that the corpus executes on the software Orin; exit code 1 if a required one is missing
    Coverage(coverage::Options),
    /// Exchange kernels and results with a GPU under NVIDIA's own driver
    #[command(subcommand)]
    Silicon(silicon::Exchange),
    /// Compare checks and profiles with NVIDIA's compute-sanitizer and ncu
    #[command(subcommand)]
    VendorTools(vendor_tools::Exchange),
    /// Run a program on the software Orin and compare its output with the log of a board; exit code 1 if they differ
    CompareBoard(compare_board::Options),
    /// Build a pack for a board without cargo: orin, orin-dev, the libraries, the examples and the kernels
    Dist(dist::Options),
    /// Build the C library and the CUDA library and write them, the header and the file for pkg-config below a prefix
    InstallLibrary(dist::library::Options),
    /// Build the Python package with the C library as a wheel
    Wheel(dist::wheel::Options),
}

/// Commands that need the project's sources: not usable on a board.
const FOR_THE_WORKSPACE: [&str; 4] = ["dist", "install-library", "kernels", "wheel"];

/// The command line of a static pack, whose one program has the commands of `orin` too.
enum Whole {
    Tool(orin_tool::Cli),
    Own(Options),
}

impl FromArgMatches for Whole {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let own = |name| board_commands().iter().any(|command| command.get_name() == name);
        if matches.subcommand_name().is_some_and(own) {
            Options::from_arg_matches(matches).map(Self::Own)
        } else {
            orin_tool::Cli::from_arg_matches(matches).map(Self::Tool)
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The commands that work without the project's sources.
fn board_commands() -> Vec<clap::Command> {
    let command = Options::command();
    let all = command.get_subcommands().filter(|command| !FOR_THE_WORKSPACE.contains(&command.get_name()));
    all.cloned().collect()
}

/// Whether the program was called `orin`, its name in a static pack.
fn is_whole() -> bool {
    std::env::args_os().next().is_some_and(|name| Path::new(&name).file_name() == Some("orin".as_ref()))
}

fn main() -> ExitCode {
    orin_cli::init_log();
    let result = if is_whole() {
        orin_cli::parse(orin_tool::Cli::command().subcommands(board_commands())).map(|whole| match whole {
            Whole::Tool(cli) => cli.run(),
            Whole::Own(options) => run(options),
        })
    } else {
        orin_cli::parse(command()).map(run)
    };
    result.map_or_else(|code| code, |result| result.unwrap_or_else(|error| orin_cli::report(&error)))
}

fn run(options: Options) -> Result<ExitCode> {
    match options.command {
        Task::TestDevice(options) => test_device::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::CheckHeaders(options) => check_headers::run(&options),
        Task::Kernels(options) => success(kernels::run(&options)),
        Task::Coverage(options) => coverage::run(&options),
        Task::Silicon(exchange) => success(silicon::run(&exchange)),
        Task::VendorTools(exchange) => success(vendor_tools::run(&exchange)),
        Task::CompareBoard(options) => compare_board::run(&options),
        Task::Dist(options) => success(dist::run(&options)),
        Task::InstallLibrary(options) => success(dist::library::run(&options)),
        Task::Wheel(options) => success(dist::wheel::run(&options)),
    }
}

/// The command line. Help shows the program as the user called it: through cargo, or by its own name if it was copied.
fn command() -> clap::Command {
    let command = Options::command();
    if std::env::var_os("CARGO").is_none() { command.name("orin-dev").bin_name("orin-dev") } else { command }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_the_commands() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/xtask.md");
        orin_cli::reference::check_page(&page, "orin-dev", Options::command());
    }

    #[test]
    fn cargo_xtask_forwards_exactly_these_commands_and_four_of_orins() {
        let [(_, own), (_, of_orin)] = xtask::FORWARDED;
        let command = Options::command();
        let mut names: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        names.sort_unstable();
        assert_eq!(names, own);
        let orin = orin_tool::Cli::command();
        for name in of_orin {
            assert!(orin.find_subcommand(name).is_some(), "orin has no command {name}");
        }
    }
}
