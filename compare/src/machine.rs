//! Where and with what a run was made.

use std::process::Command;

use crate::contender::Contender;

/// The versions that this program was built with.
const LOCK_FILE: &str = include_str!("../../Cargo.lock");

/// Lines of Markdown: the date, the machine, the versions.
pub(crate) fn description() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut lines = vec![
        format!("- date: {}", output("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
        format!("- machine: {}, {cores} cores, {}", model(&cpu), output("uname", &["-sr"])),
        format!("- Redis: {}", redis_version(&output("redis-server", &["--version"]))),
        format!("- Rust: {}", output("rustc", &["--version"])),
        format!("- redis (the crate, also by hand): {}", of_package("redis")),
    ];
    let contenders =
        Contender::ALL.into_iter().filter(|contender| ![Contender::Floor, Contender::Ideal].contains(contender));
    lines.extend(contenders.map(|contender| format!("- {}: {}", contender.name(), version(contender))));
    lines.join("\n")
}

fn version(contender: Contender) -> String {
    match contender.script() {
        Some(script) => script.version().unwrap_or("not installed".to_owned()),
        None if contender == Contender::DistributedLock => of_package("distributed-lock-redis").to_owned(),
        None => of_package(contender.name()).to_owned(),
    }
}

/// The version of a package in the lock file; of several the last.
fn of_package(name: &str) -> &'static str {
    let entry = LOCK_FILE.rsplit_once(&format!("\nname = \"{name}\"\nversion = \"")).map(|(_, rest)| rest);
    entry.and_then(|rest| rest.split('"').next()).unwrap_or("unknown")
}

fn model(cpuinfo: &str) -> &str {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(": ")).map_or("unknown processor", |(_, model)| model.trim())
}

/// Of `Redis server v=7.0.15 sha=..`.
fn redis_version(text: &str) -> &str {
    text.split_once("v=").and_then(|(_, rest)| rest.split(' ').next()).unwrap_or("unknown")
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or("unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::{model, of_package, redis_version};

    #[test]
    fn versions_come_from_the_lock_file() {
        assert_eq!(of_package("distlock"), env!("CARGO_PKG_VERSION"));
        assert_ne!(of_package("rslock"), "unknown");
        assert_eq!(of_package("no-such-package"), "unknown");
    }

    #[test]
    fn the_server_tells_its_version() {
        assert_eq!(redis_version("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64"), "7.0.15");
        assert_eq!(redis_version(""), "unknown");
    }

    #[test]
    fn the_processor_has_a_name() {
        assert_eq!(model("processor\t: 0\nmodel name\t: AMD EPYC\n"), "AMD EPYC");
        assert_eq!(model(""), "unknown processor");
    }
}
