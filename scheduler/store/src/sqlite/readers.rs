//! Reading connections: a few, each used by one blocking thread at a time.

use super::fault::{Done, Fault};
use super::open::Place;
use crate::{StoreError, StoreResult};
use rusqlite::{Connection, TransactionBehavior};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// The pool. Connections are opened when they are first needed.
pub(super) struct Readers {
    place: Place,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(place: Place, most: usize) -> Self {
        Self { place, idle: Arc::default(), permits: Arc::new(Semaphore::new(most.max(1))) }
    }

    /// Runs a read over one unchanging picture of the data.
    pub(super) async fn read<T, F>(&self, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Done<T> + Send + 'static,
    {
        let closed = |_| StoreError::Unavailable("it is closed".into());
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(closed)?;
        let (place, idle) = (self.place.clone(), Arc::clone(&self.idle));
        let done = tokio::task::spawn_blocking(move || -> StoreResult<T> {
            let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut conn = match kept {
                Some(conn) => conn,
                None => place.reader()?,
            };
            let value = picture(&mut conn, work)?;
            // One that failed is not used again: it is dropped above.
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
            drop(permit);
            Ok(value)
        });
        done.await.map_err(|error| StoreError::Unavailable(format!("a read ended early: {error}")))?
    }

    /// Takes no more reads.
    pub(super) fn close(&self) {
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn picture<T>(conn: &mut Connection, work: impl FnOnce(&Connection) -> Done<T>) -> StoreResult<T> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Deferred).map_err(Fault::read)?;
    let value = work(&tx)?;
    tx.finish().map_err(Fault::read)?;
    Ok(value)
}
