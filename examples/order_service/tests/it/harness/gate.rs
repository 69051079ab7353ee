//! A gate in the database, before which payments stand right before they record their intent.

use sqlx::{AnyPool, any::AnyPoolOptions};

use super::eventually;

/// A statement's trigger fires before it has locked any row, so that who waits here keeps nobody from the order.
const TRIGGER: &str = "
    CREATE FUNCTION wait_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END $$;
    CREATE TRIGGER gate BEFORE UPDATE OF asked_at ON orders FOR EACH STATEMENT EXECUTE FUNCTION wait_at_the_gate();
    SELECT pg_advisory_lock(1);";

const WAITING: &str = "
    FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
    WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()";

/// Closed until it is opened. Needs Postgres.
pub(crate) struct Gate(AnyPool);

impl Gate {
    pub(crate) async fn close(database: &str) -> Gate {
        sqlx::any::install_default_drivers();
        // One connection: the one that has the lock.
        let connection = AnyPoolOptions::new().max_connections(1).connect(database).await.unwrap();
        sqlx::raw_sql(TRIGGER).execute(&connection).await.unwrap();
        Gate(connection)
    }

    pub(crate) async fn is_waited_at_by(&self, count: i64) {
        eventually("payments stand at the gate", async || {
            let waiting: i64 =
                sqlx::query_scalar(&format!("SELECT COUNT(*) {WAITING}")).fetch_one(&self.0).await.unwrap();
            (waiting == count).then_some(())
        })
        .await;
    }

    /// Ends the connections of those who wait, as a server does that is going down.
    pub(crate) async fn cut_off(&self) {
        sqlx::raw_sql(&format!("SELECT pg_terminate_backend(pid) {WAITING}")).execute(&self.0).await.unwrap();
    }

    pub(crate) async fn open(&self) {
        sqlx::raw_sql("SELECT pg_advisory_unlock(1)").execute(&self.0).await.unwrap();
    }
}
