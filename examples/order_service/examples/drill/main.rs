//! An incident on demand. Three instances of the service, a slow and failing provider and a Redis; customers who tap twice, and
//! on two devices; instances that are frozen and killed, and a Redis that is frozen, or forgets. How often was each order charged,
//! with each line of defence on and off?
//!
//! `cargo run --example drill`, from the root; `-- --help` tells what can be set. Progress is on stderr, the table at the end on stdout,
//! and its picture in `drill.svg`. It fails unless all lines of defence together charge each order once, and unless the faults
//! do harm without them.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a program for a terminal")]
#![cfg_attr(
    test,
    allow(clippy::expect_used, clippy::indexing_slicing, reason = "a panic is how a test says what broke")
)]

mod settings;
mod roles;
mod modes;
mod plan;
mod run;
mod world;
mod process;
mod customers;
mod faults;
mod progress;
mod report;
mod claims;
mod table;
mod chart;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use order_service::Failure;

use crate::progress::Progress;
use crate::settings::Settings;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let outcome = match arguments.next() {
        Some(first) if first == "--role" => roles::play(arguments),
        _ => drill(&Settings::parse()),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("drill: {error}");
            ExitCode::FAILURE
        }
    }
}

/// On this thread alone: the processes that it starts end when the thread does that started them.
fn drill(settings: &Settings) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Whatever is under way is dropped then, and with it the processes.
        tokio::select! {
            code = all_modes(settings) => code,
            () = told_to_end() => Err("told to end; all processes are ended".into()),
        }
    })
}

async fn all_modes(settings: &Settings) -> Result<ExitCode, Failure> {
    if std::process::Command::new("redis-server").arg("--version").output().is_err() {
        return Err("there is no redis-server here; `cargo xtask needs` installs it on Debian".into());
    }
    let seed = settings.seed.unwrap_or_else(|| fastrand::u64(..100_000));
    let plan = plan::Plan::of(seed, settings.quick);
    let modes = settings.modes();
    let folder = tempfile::Builder::new().prefix("distlock-drill-").tempdir()?;
    let progress = Arc::new(Progress::new(modes.len()));
    progress.say(&format!("seed {seed}: {} orders in each of {} modes; the plan:", plan.orders(), modes.len()));
    for line in plan.describe() {
        progress.say(&format!("  {line}"));
    }

    let mut reports = Vec::new();
    for mode in modes {
        match run::run(*mode, &plan, folder.path(), &progress).await {
            Ok(report) => reports.push(report),
            Err(error) => return Err(format!("{error}; logs: {}", folder.keep().display()).into()),
        }
    }
    progress.done();
    print!("{}", table::of(&reports));
    println!("seed {seed}, {} orders, ttl {:?}, {:.0} s in all", plan.orders(), world::TTL, progress.seconds());
    chart::draw(&settings.chart, &reports, seed)?;
    println!("picture: {}", settings.chart.display());

    let broken = claims::broken(&reports);
    for claim in claims::kept(&reports) {
        println!("kept: {claim}");
    }
    for claim in &broken {
        println!("NOT KEPT: {claim}");
    }
    if settings.keep || !broken.is_empty() {
        println!("logs and databases: {}", folder.keep().display());
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut hang_up)) = (signal(SignalKind::terminate()), signal(SignalKind::hangup())) else {
        return;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
}
