//! Faults that are planted on purpose, for the suite in `robustness/`, which must find them. With the feature `planted-faults` the
//! environment variable `DISTLOCK_PLANTED` names one; without the feature there is nothing of this.

#[cfg(feature = "planted-faults")]
const VARIABLE: &str = "DISTLOCK_PLANTED";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// A release deletes the key, whoever holds the lock by now.
    ReleaseWithoutCheck,
    /// A lease counts from the reply, and not from the request.
    LeaseFromReply,
    /// A renewal that fails counts as one that has extended the lease.
    RenewalErrorIgnored,
}

#[cfg(not(feature = "planted-faults"))]
pub(crate) fn is(_: Planted) -> bool {
    false
}

#[cfg(feature = "planted-faults")]
pub(crate) fn is(planted: Planted) -> bool {
    static PLANTED: std::sync::LazyLock<Option<Planted>> = std::sync::LazyLock::new(named);
    *PLANTED == Some(planted)
}

#[cfg(feature = "planted-faults")]
fn named() -> Option<Planted> {
    let name = std::env::var(VARIABLE).ok()?;
    let planted = match name.as_str() {
        "" => return None,
        "release-without-check" => Planted::ReleaseWithoutCheck,
        "lease-from-reply" => Planted::LeaseFromReply,
        "renewal-error-ignored" => Planted::RenewalErrorIgnored,
        // Else a misspelt fault would be one that is never found.
        _ => unreachable!("{VARIABLE} is `{name}`, which is no fault that can be planted"),
    };
    tracing::error!(target: "distlock", ?planted, "a fault is planted: locks of this process are not safe");
    Some(planted)
}
