//! A child's wall clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use harness::faketime::FakeClock;
use harness::process::{Child, emit};

/// A role: tells both clocks again and again, in seconds and milliseconds.
pub(crate) fn tell_time(_: &[&str]) {
    let begin = std::time::Instant::now();
    loop {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        emit("time", format_args!("{wall} {}", begin.elapsed().as_millis()));
        // Slow enough that its output stays small; that it sleeps at all under a fake clock is part of the test.
        std::thread::sleep(Duration::from_millis(5));
    }
}

async fn times(child: &Child) -> (u64, u64) {
    let event = child.event("time").await;
    let (wall, monotonic) = event.split_once(' ').unwrap();
    (wall.parse().unwrap(), monotonic.parse().unwrap())
}

#[tokio::test]
async fn a_childs_wall_clock_jumps_while_it_runs_and_its_monotonic_clock_does_not() {
    let clock = FakeClock::new();
    let environment = clock.environment();
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let child = Child::spawn_with("selftest: clock", &[], &environment).await;
    let (start, _) = times(&child).await;
    let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(real.abs_diff(start) < 60, "begins with the real time: {start} and not {real}");
    for hour in [3600, -3600] {
        clock.jump_to(hour);
        let expected = start.saturating_add_signed(hour);
        loop {
            let (wall, monotonic) = times(&child).await;
            // No test lasts a minute, so a monotonic clock that jumped by an hour shows.
            assert!(monotonic < 60_000, "the monotonic clock jumped to {monotonic} ms");
            if wall.abs_diff(expected) < 60 {
                break;
            }
        }
    }
}
