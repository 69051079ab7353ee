//! Which manager an annotated function uses when it names none.

use std::sync::OnceLock;

use crate::{LockError, LockManager};

static INSTALLED: OnceLock<LockManager> = OnceLock::new();

tokio::task_local! {
    static SCOPED: LockManager;
}

pub(crate) fn install(manager: &LockManager) -> Result<(), LockError> {
    INSTALLED.set(manager.clone()).map_err(|_| LockError::AlreadyInstalled)
}

pub(crate) fn scope<F: Future>(manager: LockManager, future: F) -> impl Future<Output = F::Output> {
    SCOPED.scope(manager, future)
}

/// The manager in scope, else the installed one.
pub(crate) fn manager() -> Result<LockManager, LockError> {
    SCOPED.try_with(Clone::clone).or_else(|_| INSTALLED.get().cloned().ok_or(LockError::NotInstalled))
}
