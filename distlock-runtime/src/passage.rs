use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// The right to pass a point in the order of arrival, until this is dropped: together with others who may, or alone.
#[allow(dead_code)] // They are there to be dropped.
pub(crate) enum Passage {
    Together(OwnedRwLockReadGuard<()>),
    Alone(OwnedRwLockWriteGuard<()>),
}

impl Passage {
    /// Passes at once, or not at all.
    pub(crate) fn at_once(point: &Arc<RwLock<()>>, together: bool) -> Option<Passage> {
        if together {
            point.clone().try_read_owned().ok().map(Passage::Together)
        } else {
            point.clone().try_write_owned().ok().map(Passage::Alone)
        }
    }

    /// Waits for the turn to pass.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, the place is given up.
    pub(crate) async fn in_turn(point: Arc<RwLock<()>>, together: bool) -> Passage {
        if together { Passage::Together(point.read_owned().await) } else { Passage::Alone(point.write_owned().await) }
    }
}
