//! Which lines of defence are on.

/// One setting of the three lines of defence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) name: &'static str,
    pub(crate) lock: bool,
    pub(crate) idempotency: bool,
    pub(crate) fencing: bool,
    /// What the drill has to show in this mode.
    pub(crate) claim: Option<Claim>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Each order is charged exactly once.
    Once,
    /// Some order is charged more than once: otherwise the faults did no harm, and prove nothing where all is well.
    Harm,
}

const NONE: Mode = Mode { name: "none", lock: false, idempotency: false, fencing: false, claim: Some(Claim::Harm) };

/// From none to all.
pub(crate) const MODES: &[Mode] = &[
    NONE,
    Mode { name: "fencing", fencing: true, claim: None, ..NONE },
    Mode { name: "idempotency", idempotency: true, claim: None, ..NONE },
    Mode { name: "lock", lock: true, ..NONE },
    Mode { name: "lock+fencing", lock: true, fencing: true, claim: None, ..NONE },
    Mode { name: "lock+idempotency", lock: true, idempotency: true, claim: None, ..NONE },
    Mode { name: "all", lock: true, idempotency: true, fencing: true, claim: Some(Claim::Once) },
];

impl Mode {
    pub(crate) fn parse(name: &str) -> Result<&'static Mode, String> {
        MODES.iter().find(|mode| mode.name == name).ok_or_else(|| {
            let names: Vec<_> = MODES.iter().map(|mode| mode.name).collect();
            format!("it is one of {}", names.join(", "))
        })
    }
}
