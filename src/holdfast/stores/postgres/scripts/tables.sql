-- The tables of Holdfast on PostgreSQL, format 1. Times are in µs since the epoch, by the server's clock.

-- One row: what all locks share.
CREATE TABLE IF NOT EXISTS holdfast_store (
    id      integer PRIMARY KEY CHECK (id = 0),
    format  integer NOT NULL,
    floor   bigint  NOT NULL,          -- no token up to this one was handed out by a lock that was cleaned away
    cleaned text COLLATE "C" NOT NULL  -- the name up to which the cleaner has come
);

-- One row for each lock that is or was used. Whatever changes its queue, or who holds it, locks this row first.
CREATE TABLE IF NOT EXISTS holdfast_lock (
    name     text COLLATE "C" PRIMARY KEY,  -- namespace, U+001F, name
    token    bigint NOT NULL,  -- its last token
    used     bigint NOT NULL,  -- the weight that its holders have together
    first    bigint NOT NULL,  -- no lease on it ends before this time
    freed    bigint NOT NULL,  -- the slot of a semaphore that was freed last; -1: none
    front    bigint NOT NULL,  -- no waiter's place is up to this number,
    back     bigint NOT NULL,  --   and none is above this one
    touched  bigint NOT NULL   -- when it was last granted or asked for in vain, or its election changed
) WITH (fillfactor = 50);

-- One row for each holder and each waiter.
CREATE TABLE IF NOT EXISTS holdfast_entry (
    owner    text COLLATE "C" PRIMARY KEY,
    name     text COLLATE "C" NOT NULL,
    place    bigint   NOT NULL,  -- 0: holds the lock; above: its number in the queue; -1: gave up before it arrived
    token    bigint   NOT NULL,  -- 0 while waiting
    slot     bigint,             -- of a semaphore that it holds
    expires  bigint   NOT NULL,
    ttl      bigint   NOT NULL,
    weight   bigint   NOT NULL,
    capacity bigint   NOT NULL,
    kind     text     NOT NULL,
    barge    boolean  NOT NULL,
    claim    bigint   NOT NULL,  -- for how long it is handed the lock, before it has answered
    patience bigint   NOT NULL,  -- how long without a heartbeat it keeps its place
    since    bigint   NOT NULL,
    channel  text     NOT NULL,  -- where it is woken; empty: it looks for itself
    host     text     NOT NULL,
    pid      bigint   NOT NULL,
    label    text     NOT NULL
) WITH (fillfactor = 50);

-- No index has `expires`: a renewal then changes the row alone.
CREATE INDEX IF NOT EXISTS holdfast_entry_by_name ON holdfast_entry (name, place);
CREATE INDEX IF NOT EXISTS holdfast_entry_by_slot ON holdfast_entry (name, slot) WHERE slot IS NOT NULL;
CREATE INDEX IF NOT EXISTS holdfast_entry_given_up ON holdfast_entry (owner) WHERE place = -1;

-- One row for each of the last changes of each election: a leader, another value of the same one, or nobody.
CREATE TABLE IF NOT EXISTS holdfast_change (
    name   text COLLATE "C" NOT NULL,
    number bigint NOT NULL,  -- the token of the lock at that moment
    token  bigint NOT NULL,  -- the leader's; if nobody leads, that of the last one
    owner  text   NOT NULL,  -- empty: nobody leads
    host   text   NOT NULL,
    pid    bigint NOT NULL,
    label  text   NOT NULL,
    at     bigint NOT NULL,
    PRIMARY KEY (name, number)
);

-- One row for each who observes an election.
CREATE TABLE IF NOT EXISTS holdfast_observer (
    owner   text COLLATE "C" PRIMARY KEY,
    name    text COLLATE "C" NOT NULL,
    seen    bigint NOT NULL,  -- the number of the last change that it was told
    expires bigint NOT NULL,
    channel text   NOT NULL   -- where it is woken; empty: it looks for itself
);

CREATE INDEX IF NOT EXISTS holdfast_observer_by_name ON holdfast_observer (name);
CREATE INDEX IF NOT EXISTS holdfast_observer_by_end ON holdfast_observer (expires);

-- Who broke which lock.
CREATE TABLE IF NOT EXISTS holdfast_audit (
    id      bigserial PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    name    text NOT NULL,
    actor   text NOT NULL,
    holders text NOT NULL
);
