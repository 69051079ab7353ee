//! Processes that can't outlive the test process.

use std::path::Path;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::backstage::on_backstage;

/// A command whose process the kernel kills when the test process ends, however that ends.
///
/// `setpriv` (util-linux, on every Debian) sets the parent-death signal and then becomes the program, so the process
/// id is the program's. Setting it from here would take `unsafe` code between fork and exec. Without `setpriv` only the
/// drop of what owns the process ends it.
pub fn tied(program: impl AsRef<Path>) -> Command {
    let program = program.as_ref();
    if !Path::new("/usr/bin/setpriv").exists() {
        return Command::new(program);
    }
    let mut command = Command::new("/usr/bin/setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Starts the process from a thread that lives as long as the test process: the kernel sends the parent-death signal
/// when the *thread* that forked ends, and libtest gives each test a thread of its own.
pub async fn spawn(mut command: Command) -> Child {
    on_backstage(async move {
        let what = format!("{command:?}");
        command.spawn().unwrap_or_else(|why| panic!("can't start {what}: {why} (`cargo xtask needs` installs it)"))
    })
    .await
}

/// Stops a process: SIGSTOP. Returns when all its threads stand still.
///
/// The signal alone wakes only one thread, and until that one gets a processor the others go on.
pub fn stop(process: &Child) {
    kill_process(id(process), Signal::STOP).expect("the process is there, since we haven't waited for it yet");
    waitid(WaitId::Pid(id(process)), WaitIdOptions::STOPPED).expect("a child of ours");
}

/// Lets a stopped process go on.
pub fn cont(process: &Child) {
    kill_process(id(process), Signal::CONT).expect("the process is there, since we haven't waited for it yet");
}

fn id(process: &Child) -> Pid {
    i32::try_from(process.id()).ok().and_then(Pid::from_raw).expect("a process id")
}

/// Kills a process and waits for its end, which SIGKILL makes a matter of milliseconds, also for a stopped process.
pub fn end(process: &mut Child) {
    // An error says that it has ended already.
    let _ = process.kill();
    let _ = process.wait();
}
