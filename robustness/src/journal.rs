//! The journal: one file that all processes append to, one line for each thing that was done or seen.
//!
//! A line is `<stamp> <who> <what>`: the stamp is `CLOCK_MONOTONIC` in nanoseconds, which is one clock for all processes of a machine; who
//! is a worker (`<client>.<task>`) or `-` for who makes the faults. Each line is one write to a file opened with `O_APPEND`, so that lines
//! are never mixed, and nothing is lost when a process is killed.
//!
//! What bodies do stands in a second file, the log of holders of the harness, with the same stamps.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use harness::holders::now;

#[derive(Debug)]
pub(crate) struct Journal(File);

impl Journal {
    pub(crate) fn open(path: &Path) -> Journal {
        Journal(OpenOptions::new().append(true).create(true).open(path).expect("the journal can be written"))
    }

    pub(crate) fn note(&self, who: &str, what: &str) {
        self.note_at(now(), who, what);
    }

    pub(crate) fn note_at(&self, stamp: u64, who: &str, what: &str) {
        let line = format!("{stamp} {who} {what}\n");
        (&self.0).write_all(line.as_bytes()).expect("the journal can be written");
    }
}
