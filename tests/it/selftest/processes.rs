//! Client processes.

use std::time::Duration;

use harness::eventually::eventually;
use harness::holders::{Log, NotingPolls, Until, assert_no_overlap};
use harness::process::{Child, emit};

/// A role: counts up as long as it lives, with the arguments it got.
pub(crate) fn count(arguments: &[&str]) {
    for number in 0.. {
        emit("count", format_args!("{number} {}", arguments.join("+")));
        // Slow enough that its output stays small.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A role: appends one hold to the log of holders that is named, and ends.
pub(crate) fn hold(arguments: &[&str]) {
    let body = async {
        let holder = Log::open(arguments[0]).start("k", arguments[1]);
        holder.step();
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(NotingPolls::of(body));
    emit("held", "");
}

fn lines(child: &Child) -> usize {
    child.output().lines().count()
}

#[tokio::test]
async fn a_child_tells_of_events_until_it_is_killed() {
    let child = Child::spawn("selftest: count", &["a b", "c"]).await;
    assert_eq!(child.event("count").await, "0 a b+c");
    child.kill();
    assert!(!child.wait().await.status.success());
}

#[tokio::test]
async fn a_stopped_child_does_nothing_until_it_is_continued() {
    let child = Child::spawn("selftest: count", &[]).await;
    child.event("count").await;
    child.stop();
    // What is in the pipe yet is read within this time; were the child not stopped, it would count on for ever.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = lines(&child);
    tokio::time::sleep(Duration::from_millis(200)).await; // a time in which a running child counts to 40
    assert_eq!(lines(&child), before);
    child.cont();
    eventually("the child to go on", || async { lines(&child) > before }).await;
}

#[tokio::test]
async fn a_dropped_child_is_gone() {
    let child = Child::spawn("selftest: count", &[]).await;
    child.event("count").await;
    let folder = format!("/proc/{}", child.id());
    assert!(std::path::Path::new(&folder).exists());
    drop(child);
    assert!(!std::path::Path::new(&folder).exists());
}

#[tokio::test]
async fn several_processes_share_one_log_of_holders() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("holders");
    for token in ["a", "b"] {
        let child = Child::spawn("selftest: hold", &[log.to_str().unwrap(), token]).await;
        child.event("held").await;
        let ended = child.wait().await;
        assert!(ended.status.success(), "{}", ended.output);
    }
    let holds = assert_no_overlap(&log, Until::Dropped);
    assert_eq!(holds.iter().map(|hold| hold.token.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}
