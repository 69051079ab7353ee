//! `cargo xtask compare`: distlock, hand-written code and other locks on Redis, measured in one run on one machine.
//!
//! Every contender has a process of its own and, for each workload, fresh servers of its own; in every round all take turns,
//! and the ratio to the hand-written code is made within the round. `--help` says how long it takes.

mod options;
mod contender;
mod workloads;
mod rounds;
mod child;
mod delay;
mod party;
mod peers;
mod statistics;
mod report;
mod chart;
mod machine;
mod cores;
// The bench `contended` measures more ways of waiting, and fewer contenders, by the same means.
#[path = "../../benches/contended/turns.rs"]
mod turns;
#[path = "../../benches/contended/commands.rs"]
mod commands;
#[path = "../../benches/contended/figures.rs"]
#[allow(dead_code, reason = "the bench prints a table of its own")]
mod figures;
#[path = "../../benches/shared/by_hand.rs"]
mod by_hand;

use std::alloc::System;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use self::contender::Contender;
use self::options::Options;
use self::party::Party;
use self::report::Report;

/// What ends a run.
type Failure = Box<dyn std::error::Error>;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(party) = Party::from_arguments(&arguments) {
        party.contender.serve(&party);
        return ExitCode::SUCCESS;
    }
    let outcome = match Options::parse(&arguments) {
        Ok(Some(options)) => run(&options),
        Ok(None) => {
            println!("{}", options::HELP);
            Ok(())
        }
        Err(text) => Err(text.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("compare: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let machine = machine::description();
    println!("{machine}");
    let mut reports = Vec::new();
    for workload in options.workloads() {
        let report = workloads::run(workload, options)?;
        println!("\n{}\n\n{}", report.title, report.about);
        for table in &report.tables {
            print!("\n{}", table.to_text());
        }
        reports.push(report);
    }
    // Without these there is nothing to compare.
    for contender in [Contender::Distlock, Contender::Floor] {
        if let Some(why) = reports.iter().flat_map(|report| &report.tables).find_map(|table| table.absence(contender)) {
            return Err(format!("{} {why}, so that nothing is written", contender.name()).into());
        }
    }
    if options.writes() {
        let folder = child::folder().with_file_name("docs");
        write(&folder, options, &machine, &reports)?;
        eprintln!("written: {}", folder.display());
    }
    Ok(())
}

fn write(folder: &Path, options: &Options, machine: &str, reports: &[Report]) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)?;
    let kind = if options.quick { "`cargo xtask compare --quick`, a short run" } else { "`cargo xtask compare`" };
    let mut text = format!("# Speed against others\n\nWritten by {kind}: every figure is from one run.\n\n{machine}\n");
    for report in reports {
        let picture = format!("comparison-{}.svg", report.workload.name());
        chart::draw(&folder.join(&picture), report)?;
        write!(text, "\n## {}\n\n{}\n\n![{}]({picture})\n", report.title, report.about, report.title)?;
        for table in &report.tables {
            write!(text, "\n{}", table.to_markdown())?;
        }
    }
    std::fs::write(folder.join("comparison.md"), text)?;
    Ok(())
}
