//! What can be set.

use std::path::PathBuf;

use clap::Parser;

use crate::modes::{MODES, Mode};

/// Charges orders while instances and Redis are frozen and killed, and counts the charges.
#[derive(Debug, Parser)]
#[command(name = "drill")]
pub(crate) struct Settings {
    /// What the plan is made from: who taps when and where, and what fails when. Without it each run has another.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Fewer orders, in three modes: `none`, `lock` and `all`.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only this mode, by the lines of defence that are on: `none`, `lock`, `lock+fencing`, `all` .. May be given several times.
    #[arg(long = "mode", value_parser = Mode::parse)]
    only: Vec<&'static Mode>,
    /// Where the picture is to be written.
    #[arg(long, default_value = "drill.svg")]
    pub(crate) chart: PathBuf,
    /// Keeps logs and databases in any case; where a claim is broken they are kept anyway.
    #[arg(long)]
    pub(crate) keep: bool,
}

impl Settings {
    pub(crate) fn modes(&self) -> Vec<&'static Mode> {
        if !self.only.is_empty() {
            return self.only.clone();
        }
        MODES.iter().filter(|mode| !self.quick || mode.claim.is_some()).collect()
    }
}
