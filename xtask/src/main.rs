//! The project's own chores. `cargo xtask test` is what CI runs, so that a green run here is a green run there.

mod needs;
mod steps;

use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask <command>

  test      what CI runs: installs what the tests need from Debian's packages where it is missing
            (redis-server, libfaketime, openssl, postgresql, prometheus), then formatting, clippy, documentation, all tests, the
            quickstart, the drill in short
  needs     only installs what the tests need
  help      this text

The tests against real servers are one binary. To run some of them: cargo test --test it -- <part of a name>";

fn main() -> ExitCode {
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let outcome = match command.as_str() {
        "test" => steps::run_all(),
        "needs" => needs::install_missing(),
        "" | "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        _ => Err(format!("unknown command `{command}`\n\n{HELP}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("xtask: {text}");
            ExitCode::FAILURE
        }
    }
}
