-- The embedded store, format 4. Run once, in one transaction, on an empty file.
-- The format number is in PRAGMA user_version; PRAGMA application_id says that the file is ours.

-- One row: what all locks share.
CREATE TABLE store (
    id       INTEGER PRIMARY KEY CHECK (id = 0),
    token    INTEGER NOT NULL,  -- no token up to this one is minted again
    base     INTEGER NOT NULL,  -- tokens are the boot clock in µs plus this; set once for each boot
    ceiling  INTEGER NOT NULL,  -- on the disk before any token that reaches it is handed out
    boot     TEXT    NOT NULL,  -- the boot, and
    timens   TEXT    NOT NULL,  --   the time namespace, that "expires" is counted in
    live     TEXT    NOT NULL   -- the identity of the folder that "process" and "tether" refer to
) STRICT;

-- One row for each holder and each waiter; a lock that nobody wants has none.
CREATE TABLE entry (
    name      TEXT    NOT NULL,  -- namespace, U+001F, name
    waiting   INTEGER NOT NULL,  -- 0 holder, 1 waiter
    seq       INTEGER NOT NULL,  -- waiters: in the order of their arrival; holders: 0 if there can
                                 --   be but one, else their token
    owner     TEXT    NOT NULL,
    token     INTEGER NOT NULL,  -- 0 while waiting
    expires   REAL    NOT NULL,  -- on the boot clock
    ttl       REAL    NOT NULL,
    weight    INTEGER NOT NULL,
    capacity  INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    barge     INTEGER NOT NULL,
    confirmed INTEGER NOT NULL,  -- 0 between a hand-over and the first renewal
    claim     REAL    NOT NULL,  -- for how long it is handed the lock, before it has answered
    patience  REAL    NOT NULL,  -- how long without a heartbeat it keeps its place
    since     REAL    NOT NULL,  -- on the wall clock, for people
    process   TEXT    NOT NULL,  -- whose death ends it; empty: its TTL alone does
    address   TEXT    NOT NULL,  -- where it is woken
    tether    TEXT    NOT NULL,  -- what else has to be dead; empty: nothing
    kept_until REAL   NOT NULL,  -- a detached lease: its end on the wall clock, for the next boot; else 0
    host      TEXT    NOT NULL,
    pid       INTEGER NOT NULL,
    label     TEXT    NOT NULL,
    -- The rows of a lock stand together, in the order in which they are read: a grant that meets
    -- nobody, and its release, touch one page of this table and no index.
    PRIMARY KEY (name, waiting, seq)
) STRICT, WITHOUT ROWID;

-- The rows of a lock that may have many: by name alone, each heartbeat of each of n waiters would look
-- through all n. The one holder of a mutex is not in it, so it costs an uncontended grant nothing.
CREATE INDEX entry_by_owner ON entry (owner) WHERE waiting = 1 OR capacity > 1;

-- The last changes of each election, for those who observe it.
CREATE TABLE change (
    name   TEXT    NOT NULL,
    number INTEGER NOT NULL,  -- above those of all changes before; drawn from the tokens
    token  INTEGER NOT NULL,
    owner  TEXT    NOT NULL,  -- empty: nobody leads
    host   TEXT    NOT NULL,
    pid    INTEGER NOT NULL,
    label  TEXT    NOT NULL,
    since  REAL    NOT NULL,  -- on the wall clock
    PRIMARY KEY (name, number)
) STRICT, WITHOUT ROWID;

-- Those who are woken by the next change.
CREATE TABLE observer (
    name    TEXT NOT NULL,
    owner   TEXT NOT NULL,
    process TEXT NOT NULL,
    address TEXT NOT NULL,
    expires REAL NOT NULL,  -- on the boot clock
    PRIMARY KEY (name, owner)
) STRICT, WITHOUT ROWID;

-- Who broke which lock. The newest thousand are kept.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      REAL NOT NULL,
    name    TEXT NOT NULL,
    actor   TEXT NOT NULL,
    holders TEXT NOT NULL
) STRICT;
