//! Tries to break the promises at random. Client processes run annotated functions of all kinds against a real topology, while clients,
//! servers and links fail by a plan that is drawn from a seed. All that was done is written down with stamps of one clock, and then
//! compared with what is promised: `check` says what that is.
//!
//! `cargo xtask robustness`, from the root; `-- --help` tells what can be set. A violation is printed as a short timeline, and drawn.
//! With `--plant` a fault is put into the library, and the run fails unless it is found.

mod settings;
mod run;
mod world;
mod rights;
mod plan;
mod inject;
mod watch;
mod clients;
mod client;
mod journal;
mod loss;
mod history;
mod check;
mod coverage;
mod timeline;
mod report;

use std::process::ExitCode;

use clap::Parser;

use crate::settings::Settings;

fn main() -> ExitCode {
    if let Some((_, arguments)) = harness::process::role() {
        client::play(&arguments);
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(run::run(&Settings::parse()))
}
