-- The tables of Holdfast on MySQL and MariaDB, format 1. Times are in µs since the epoch, by the server's clock.
-- Text is kept as the bytes of its UTF-8: no two names are equal that are not the same.

-- One row: what all locks share.
CREATE TABLE IF NOT EXISTS holdfast_store (
    id      INT            NOT NULL PRIMARY KEY,
    format  INT            NOT NULL,
    floor   BIGINT         NOT NULL,  -- no token up to this one was handed out by a lock that was cleaned away
    cleaned VARBINARY(2049) NOT NULL  -- the name up to which the cleaner has come
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- One row for each lock that is or was used. Whatever changes its queue, or who holds it, locks this row first.
CREATE TABLE IF NOT EXISTS holdfast_lock (
    name    VARBINARY(2049) NOT NULL PRIMARY KEY,  -- namespace, U+001F, name
    token   BIGINT NOT NULL,  -- its last token
    used    BIGINT NOT NULL,  -- the weight that its holders have together
    first   BIGINT NOT NULL,  -- no lease on it ends before this time
    freed   BIGINT NOT NULL,  -- the slot of a semaphore that was freed last; -1: none
    front   BIGINT NOT NULL,  -- no waiter's place is up to this number,
    back    BIGINT NOT NULL,  --   and none is above this one
    touched BIGINT NOT NULL   -- when it was last granted or asked for in vain, or its election changed
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- One row for each holder and each waiter; and for each owner that gave up before its request arrived: its name is
-- empty then, and its place is minus the time until which it is remembered.
CREATE TABLE IF NOT EXISTS holdfast_entry (
    owner    VARBINARY(64)   NOT NULL PRIMARY KEY,
    name     VARBINARY(2049) NOT NULL,
    place    BIGINT          NOT NULL,  -- 0: holds the lock; above: its number in the queue
    token    BIGINT          NOT NULL,  -- 0 while waiting
    slot     BIGINT,                    -- of a semaphore that it holds
    expires  BIGINT          NOT NULL,
    ttl      BIGINT          NOT NULL,
    weight   BIGINT          NOT NULL,
    capacity BIGINT          NOT NULL,
    kind     VARBINARY(32)   NOT NULL,
    barge    BOOLEAN         NOT NULL,
    claim    BIGINT          NOT NULL,  -- for how long it is handed the lock, before it has answered
    patience BIGINT          NOT NULL,  -- how long without a heartbeat it keeps its place
    since    BIGINT          NOT NULL,
    host     VARBINARY(1024) NOT NULL,
    pid      BIGINT          NOT NULL,
    label    VARBINARY(4096) NOT NULL,
    KEY by_name (name, place, slot)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- One row for each of the last changes of each election: a leader, another value of the same one, or nobody.
CREATE TABLE IF NOT EXISTS holdfast_change (
    name   VARBINARY(2049) NOT NULL,
    number BIGINT          NOT NULL,  -- the token of the lock at that moment
    token  BIGINT          NOT NULL,  -- the leader's; if nobody leads, that of the last one
    owner  VARBINARY(64)   NOT NULL,  -- empty: nobody leads
    host   VARBINARY(1024) NOT NULL,
    pid    BIGINT          NOT NULL,
    label  VARBINARY(4096) NOT NULL,
    at     BIGINT          NOT NULL,
    PRIMARY KEY (name, number)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- One row for each who observes an election.
CREATE TABLE IF NOT EXISTS holdfast_observer (
    owner   VARBINARY(64)   NOT NULL PRIMARY KEY,
    name    VARBINARY(2049) NOT NULL,
    seen    BIGINT          NOT NULL,  -- the number of the last change that it was told
    expires BIGINT          NOT NULL,
    KEY by_end (expires)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Who broke which lock.
CREATE TABLE IF NOT EXISTS holdfast_audit (
    id      BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at      DATETIME(6)     NOT NULL,  -- UTC
    name    VARBINARY(2049) NOT NULL,
    actor   VARBINARY(4096) NOT NULL,
    holders LONGBLOB        NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
