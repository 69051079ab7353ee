//! The steps of `cargo xtask test`, in the order in which a mistake is cheapest to find.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::needs;

/// A call of cargo. All steps share one target folder and, but for the last one, one set of features, so that
/// nothing is built twice.
struct Step {
    name: &'static str,
    cargo: &'static str,
    env: &'static [(&'static str, &'static str)],
}

const OVER_ANOTHER: &str = "test --workspace --all-features --test it -- ending:: exclusion:: going_down:: keys:: kinds:: nesting:: \
     releasing:: runtimes:: several:: shutdown:: waiting:: --skip cluster --skip sentinel --skip faults:: --skip odd_ \
     --skip hundred_thousand --skip thousand --skip in_memory --skip rights --skip connection \
     --skip alike:: --skip clock_was_set_back --skip on_all_its_keys";

const STEPS: &[Step] = &[
    Step { name: "formatting", cargo: "fmt --all --check", env: &[] },
    Step { name: "clippy", cargo: "clippy --workspace --all-targets --all-features -- --deny warnings", env: &[] },
    Step {
        name: "documentation",
        cargo: "doc --workspace --all-features --no-deps",
        env: &[("RUSTDOCFLAGS", "--deny warnings")],
    },
    Step {
        name: "unit, ui and integration tests",
        cargo: "test --workspace --all-features --lib --bins --examples --tests",
        env: &[],
    },
    // What a lock does on one server it does on a cluster and behind sentinels, too. Tests of links and of faults of a server
    // are not among these: a proxy is no node, and a cluster or a sentinel has tests of its own for faults. Nor are those that count
    // on one server for all keys, or start it themselves.
    Step { name: "the same over a cluster", cargo: OVER_ANOTHER, env: &[("DISTLOCK_TOPOLOGY", "cluster")] },
    Step { name: "the same behind sentinels", cargo: OVER_ANOTHER, env: &[("DISTLOCK_TOPOLOGY", "sentinel")] },
    Step { name: "documentation tests", cargo: "test --workspace --all-features --doc", env: &[] },
    // Without features, which the package's name is for, since the example service would bring some: this also shows that the
    // library builds that way.
    Step { name: "quickstart example", cargo: "run --package distlock --example quickstart", env: &[] },
    // Fails unless each order is charged once with all lines of defence, and some are charged twice without.
    Step { name: "drill, in short", cargo: "run --package order-service --example drill -- --quick", env: &[] },
    Step { name: "a minute of faults at random", cargo: "run --package distlock-robustness -- --minutes 1", env: &[] },
];

/// Runs every step and stops at the first that fails, naming it. Prints at the end how long each one took.
pub(crate) fn run_all() -> Result<(), String> {
    let mut times = Vec::new();
    let outcome = run_steps(&mut times);
    println!("\ntime per step:");
    for (name, time) in &times {
        println!("  {:>7.1}s  {name}", time.as_secs_f64());
    }
    outcome
}

/// Makes faults at random, and checks what happened.
pub(crate) fn robustness(options: &[&str]) -> Result<(), String> {
    needs::succeed(cargo().args(["run", "--package", "distlock-robustness", "--"]).args(options))
}

/// Builds and runs the comparison. It is named as a package, so that the library has its default features there: together with
/// others it would be built with theirs, too.
pub(crate) fn compare(options: &[&str]) -> Result<(), String> {
    needs::succeed(cargo().args(["run", "--release", "--package", "distlock-compare", "--"]).args(options))
}

/// Cargo sets CARGO for what it runs, so that the same toolchain is used again.
fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn run_steps(times: &mut Vec<(&'static str, Duration)>) -> Result<(), String> {
    timed(times, "what the tests need", needs::install_missing)?;
    for step in STEPS {
        println!("\n==> {}: cargo {}", step.name, step.cargo);
        timed(times, step.name, || step.run())?;
    }
    Ok(())
}

fn timed(
    times: &mut Vec<(&'static str, Duration)>,
    name: &'static str,
    work: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let begin = Instant::now();
    let outcome = work();
    times.push((name, begin.elapsed()));
    outcome.map_err(|why| format!("step `{name}` failed: {why}"))
}

impl Step {
    fn run(&self) -> Result<(), String> {
        let mut command = cargo();
        command.args(self.cargo.split(' ')).envs(self.env.iter().copied());
        needs::succeed(&mut command)
    }
}
