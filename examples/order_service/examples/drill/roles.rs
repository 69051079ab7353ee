//! The processes of the drill are the drill itself, in another role.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Parser;
use order_service::config::{Cli, Role};
use order_service::{Failure, provider, service};

/// Plays a role until the end: `serve` and `provider` with the arguments of `order-service`, or `redis` with those of `redis-server`.
pub(crate) fn play(arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, Failure> {
    end_with_the_drill()?;
    let mut arguments = arguments.peekable();
    if arguments.next_if(|role| role == "redis").is_some() {
        return Err(Command::new("redis-server").args(arguments).exec().into());
    }
    let cli = Cli::parse_from(std::iter::once(OsString::from("drill --role")).chain(arguments));
    tokio::runtime::Runtime::new()?.block_on(async {
        match cli.role {
            Role::Serve(config) => service::serve(config).await,
            Role::Provider(config) => provider::serve(config).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// However the drill ends, even if it is killed, nothing of it is left behind, not even what it has frozen.
#[cfg(target_os = "linux")]
fn end_with_the_drill() -> std::io::Result<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

#[cfg(not(target_os = "linux"))]
fn end_with_the_drill() -> std::io::Result<()> {
    Ok(())
}
