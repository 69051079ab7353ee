//! The project's own chores. `cargo xtask test` is what CI runs, so that a green run here is a green run there.

mod needs;
mod steps;

use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask <command>

  test      what CI runs: installs what the tests need from Debian's packages where it is missing
            (redis-server, libfaketime, openssl, postgresql, prometheus), then formatting, clippy, documentation, all tests, the
            quickstart, the drill in short, a minute of faults at random
  robustness
            makes faults at random on four topologies, for a minute, and checks what happened; `--minutes`, `--seed`, `--topology`,
            `--plant`; `--help` says more
  compare   measures distlock against hand-written code and other locks on Redis, and writes docs/comparison.md: about 22
            minutes; `--quick`: three, without writing; `--only <workload>`: a part; `--help` says more
  needs     only installs what the tests need
  help      this text

The tests against real servers are one binary. To run some of them: cargo test --test it -- <part of a name>";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["test"] => steps::run_all(),
        ["needs"] => needs::install_missing(),
        ["robustness", options @ ..] => steps::robustness(options),
        ["compare", options @ ..] => steps::compare(options),
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        _ => Err(format!("unknown command `{}`\n\n{HELP}", arguments.join(" "))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("xtask: {text}");
            ExitCode::FAILURE
        }
    }
}
