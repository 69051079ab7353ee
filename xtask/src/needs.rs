//! What the tests need on the machine, from Debian's packages.

use std::path::Path;
use std::process::{Command, Stdio};

struct Need {
    package: &'static str,
    is_there: fn() -> bool,
}

const NEEDS: &[Need] = &[
    Need { package: "redis-server", is_there: has_redis_server },
    Need { package: "libfaketime", is_there: has_libfaketime },
    Need { package: "openssl", is_there: has_openssl },
    Need { package: "prometheus", is_there: has_prometheus },
    Need { package: "postgresql", is_there: has_postgres },
];

/// Installs the packages that are missing; does nothing where all are there.
pub(crate) fn install_missing() -> Result<(), String> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    if !runs("apt-get", "--version") {
        return Err(format!(
            "the tests need {}, and there is no apt-get here to install it with; please install it by hand",
            missing.join(" and ")
        ));
    }
    println!("==> installing {}", missing.join(" "));
    succeed(&mut apt_get(&["update"]))?;
    succeed(apt_get(&["install", "--yes", "--no-install-recommends"]).args(&missing))?;
    if missing.contains(&"prometheus") {
        stop_service("prometheus");
    }
    match self::missing().as_slice() {
        [] => Ok(()),
        still => Err(format!("{} can't be found, though apt-get says it is installed", still.join(" and "))),
    }
}

fn missing() -> Vec<&'static str> {
    NEEDS.iter().filter(|need| !(need.is_there)()).map(|need| need.package).collect()
}

fn has_redis_server() -> bool {
    runs("redis-server", "--version")
}

/// For the certificates of the tests over TLS.
fn has_openssl() -> bool {
    runs("openssl", "version")
}

/// For the tests of the example service. Debian keeps the programs of a server out of the path, apart by version.
fn has_postgres() -> bool {
    let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") else {
        return false;
    };
    versions.flatten().any(|version| version.path().join("bin/initdb").exists())
}

/// For the dashboard's queries and the alert rules; `promtool` comes with it.
fn has_prometheus() -> bool {
    runs("prometheus", "--version") && runs("promtool", "--version")
}

/// The library stands in a folder named after the architecture.
fn has_libfaketime() -> bool {
    let Ok(folders) = std::fs::read_dir("/usr/lib") else {
        return false;
    };
    folders
        .flatten()
        .map(|folder| folder.path().join("faketime/libfaketime.so.1"))
        .chain([Path::new("/usr/lib/faketime/libfaketime.so.1").to_path_buf()])
        .any(|library| library.exists())
}

/// Debian starts a service with `redis-server` and with `postgresql` where it can. The tests start their own servers on
/// their own ports, so those do no harm.
fn apt_get(arguments: &[&str]) -> Command {
    let mut command = as_root("DEBIAN_FRONTEND=noninteractive");
    command.arg("apt-get").args(arguments);
    command
}

/// Debian also starts a service with `prometheus`, which would go on to collect and to write what nobody asked for. Only the
/// program is wanted. Where there is no systemd, as in a container, `service` and `update-rc.d` look at `/etc/init.d`; where nothing
/// was started they have nothing to do, so how they end says nothing.
fn stop_service(name: &str) {
    for command in [["service", name, "stop"], ["update-rc.d", name, "disable"]] {
        let _ = as_root("LC_ALL=C").args(command).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// The beginning of a command with a variable, as root. `env` stands behind `sudo`, since sudo drops the variables of its caller.
fn as_root(variable: &str) -> Command {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.trim_ascii() == b"0");
    let mut command = Command::new(if is_root { "env" } else { "sudo" });
    if !is_root {
        command.arg("env");
    }
    command.arg(variable);
    command
}

fn runs(program: &str, argument: &str) -> bool {
    let quiet = Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

/// Runs a command on this terminal; `Err` says how it ended when that wasn't well.
pub(crate) fn succeed(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program}: {status}")),
        Err(why) => Err(format!("{program} can't be started: {why}")),
    }
}
