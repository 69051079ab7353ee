//! What is shown on stderr while the drill runs.

use std::io::{IsTerminal, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the state is told where lines can't be written over.
const SELDOM: Duration = Duration::from_secs(5);

/// The one who talks. On a terminal the last line is the state of the mode under way, written over and over.
pub(crate) struct Progress {
    begin: Instant,
    modes: usize,
    is_terminal: bool,
    state: Mutex<State>,
}

struct State {
    mode: &'static str,
    number: usize,
    told: Instant,
}

impl Progress {
    pub(crate) fn new(modes: usize) -> Progress {
        let begin = Instant::now();
        let state = Mutex::new(State { mode: "", number: 0, told: begin });
        Progress { begin, modes, is_terminal: stderr().is_terminal(), state }
    }

    pub(crate) fn begin(&self, mode: &'static str) {
        self.with(|state| (state.mode, state.number) = (mode, state.number + 1));
        self.say("three instances, a provider and a Redis are being started");
    }

    /// Tells of an event.
    pub(crate) fn say(&self, text: &str) {
        self.with(|state| self.write(state, text, "\n"));
    }

    /// Tells how far it is.
    pub(crate) fn tell_state(&self, text: &str) {
        self.with(|state| {
            if self.is_terminal {
                self.write(state, text, "");
            } else if state.told.elapsed() > SELDOM {
                state.told = Instant::now();
                self.write(state, text, "\n");
            }
        });
    }

    /// Takes the last line away.
    pub(crate) fn done(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    fn write(&self, state: &State, text: &str, end: &str) {
        let over = if self.is_terminal { "\r\x1b[K" } else { "" };
        let (seconds, modes) = (self.seconds(), self.modes);
        match state {
            State { number: 0, .. } => eprint!("{over}[{seconds:5.1} s] {text}{end}"),
            State { number, mode, .. } => eprint!("{over}[{seconds:5.1} s] {number}/{modes} {mode}: {text}{end}"),
        }
    }

    fn with(&self, work: impl FnOnce(&mut State)) {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
