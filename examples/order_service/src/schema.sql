-- For SQLite and Postgres alike. Times are milliseconds since 1970, by the database's clock: one clock for all instances.

CREATE TABLE IF NOT EXISTS orders (
    id TEXT PRIMARY KEY,
    amount BIGINT NOT NULL,
    status TEXT NOT NULL DEFAULT 'open',
    charge TEXT,
    -- The intent: when the provider was asked, and by which payment. Without an outcome while the order is open.
    asked_at BIGINT,
    asked_with TEXT,
    -- The third line of defence: the fencing token of the last holder of the order's lock.
    fence BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE IF NOT EXISTS idempotency (
    key TEXT NOT NULL,
    request TEXT NOT NULL,
    -- 0 where the request has come to no answer and may come again.
    claimed_at BIGINT NOT NULL,
    status BIGINT,
    answer TEXT
);
-- The second line of defence.
CREATE UNIQUE INDEX IF NOT EXISTS one_request_for_each_key ON idempotency (key);

CREATE TABLE IF NOT EXISTS accounts (
    id TEXT PRIMARY KEY,
    balance BIGINT NOT NULL,
    fence BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE IF NOT EXISTS stock (
    sku TEXT PRIMARY KEY,
    count BIGINT NOT NULL,
    fence BIGINT NOT NULL DEFAULT 0,
    -- Not for the lock: for the alternative that does without.
    version BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE IF NOT EXISTS jobs (
    name TEXT PRIMARY KEY,
    done_at BIGINT NOT NULL
);
