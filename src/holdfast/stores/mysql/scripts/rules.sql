-- The steps of a lock: each is one call, in one transaction that it begins and ends itself, and nobody waits for a client
-- inside it: what it returns is sent after the commit.
--
-- A step locks the lock's row first. All that it then reads of that lock is read under that row's lock, with a
-- snapshot of its own for each query (READ COMMITTED, whatever the session has), and so is the clock.
-- But the entry of a holder may be locked before the lock's row, by a renewal, which moves its end and locks no
-- other row, and by a release. So whoever has locked the lock's row waits for no holder's entry: one that is
-- locked has not ended, or its own step will see to it. Entries are locked by their owner, never through another index.
--
-- Lists come as JSON with all text in hexadecimal digits, so no character set has a say in it. Inside a step a list of
-- owners is their digits with commas between. There are no functions, since a server that keeps a binary log lets
-- few users create one. Words in /*! */ are read by MySQL alone, those in /*M! */ by MariaDB alone.

-- Begins a step, which waits for `wait_ms` at most for the steps of others, by seconds. A server that is read-only is refused
-- here, because a privileged user could write to it.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_begin(wait_ms BIGINT)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
        SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only (read_only)';
    END IF;
    SET SESSION innodb_lock_wait_timeout = GREATEST(1, wait_ms DIV 1000), SESSION group_concat_max_len = 16777216,
        SESSION time_zone = '+00:00';
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
    START TRANSACTION;
END
$$

-- Makes a lock's row, unless somebody else did, and locks it. Its tokens begin above the floor, which is read in a query of
-- its own: whoever cleaned away an earlier row of this name has raised the floor by the time that this one is there.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_make(
    lock_name VARBINARY(2049),
    OUT lock_token BIGINT, OUT lock_used BIGINT, OUT lock_first BIGINT, OUT lock_freed BIGINT, OUT lock_front BIGINT,
    OUT lock_back BIGINT, OUT lock_touched BIGINT
)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    INSERT INTO holdfast_lock (name, token, used, first, freed, front, back, touched)
        VALUES (lock_name, 0, 0, 0, -1, 0, 0, 0) ON DUPLICATE KEY UPDATE name = lock_name;
    SELECT l.token, l.used, l.first, l.freed, l.front, l.back, l.touched
        INTO lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched
        FROM holdfast_lock AS l WHERE l.name = lock_name FOR UPDATE;
    IF lock_token = 0 THEN
        SELECT s.floor INTO lock_token FROM holdfast_store AS s;
    END IF;
END
$$

-- Returns the next token of a semaphore. No two holders have the same slot, which is the remainder of the token: the next
-- few slots are tried, then the one that was freed last, then all.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_mint(
    lock_name VARBINARY(2049), permits BIGINT, freed_last BIGINT, lowest BIGINT, OUT minted BIGINT
)
SQL SECURITY INVOKER MODIFIES SQL DATA
mint: BEGIN
    SET minted = lowest;
    WHILE minted < lowest + LEAST(permits, 8) DO
        IF NOT EXISTS (
            SELECT 1 FROM holdfast_entry AS e
                WHERE e.name = lock_name AND e.place = 0 AND e.slot = minted MOD permits
        ) THEN
            LEAVE mint;
        END IF;
        SET minted = minted + 1;
    END WHILE;
    IF freed_last >= 0 AND NOT EXISTS (
        SELECT 1 FROM holdfast_entry AS e
            WHERE e.name = lock_name AND e.place = 0 AND e.slot = freed_last MOD permits
    ) THEN
        SET minted = lowest + (freed_last MOD permits - lowest MOD permits + permits) MOD permits;
        LEAVE mint;
    END IF;
    -- The first distance at which no slot is taken.
    SELECT lowest + COALESCE(MIN(IF(t.distance <> t.rising, t.rising, NULL)), COUNT(*)) INTO minted FROM (
        SELECT d.distance, ROW_NUMBER() OVER (ORDER BY d.distance) - 1 AS rising FROM (
            SELECT (e.slot - lowest MOD permits + permits) MOD permits AS distance FROM holdfast_entry AS e
                WHERE e.name = lock_name AND e.place = 0 AND e.slot IS NOT NULL
        ) AS d
    ) AS t;
END
$$

-- Removes those of the `listed` entries that have ended. One that is locked is left alone.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_remove(listed LONGTEXT CHARACTER SET utf8mb4, moment BIGINT)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DECLARE ended LONGTEXT CHARACTER SET utf8mb4;
    SELECT GROUP_CONCAT(HEX(e.owner)) INTO ended
        FROM JSON_TABLE(
            CONCAT('["', REPLACE(listed, ',', '","'), '"]'), '$[*]' COLUMNS (digits VARCHAR(128) CHARACTER SET ascii PATH '$')
        ) AS c STRAIGHT_JOIN holdfast_entry AS e ON e.owner = UNHEX(c.digits)
        WHERE e.place >= 0 AND e.expires <= moment FOR UPDATE /*!80001 OF e */ SKIP LOCKED;
    IF ended IS NOT NULL THEN
        DELETE e
            FROM JSON_TABLE(
                CONCAT('["', REPLACE(ended, ',', '","'), '"]'), '$[*]' COLUMNS (digits VARCHAR(128) CHARACTER SET ascii PATH '$')
            ) AS c STRAIGHT_JOIN holdfast_entry AS e ON e.owner = UNHEX(c.digits);
    END IF;
END
$$

-- Removes the entry of an owner. If it is to be kept in mind for a while, so that a copy of its request is refused, the
-- entry becomes a mark.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_leave(lock_name VARBINARY(2049), leaving VARBINARY(64), remember BIGINT)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DECLARE until BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) + remember;
    IF remember = 0 THEN
        DELETE FROM holdfast_entry WHERE owner = leaving AND name = lock_name;
    ELSE
        UPDATE holdfast_entry AS e SET e.name = '', e.place = -until, e.token = 0, e.slot = NULL, e.expires = until
            WHERE e.owner = leaving AND e.name = lock_name;
    END IF;
END
$$

-- Does all that is due at a lock whose row is locked: ends leases that are over, passes over waiters that are gone,
-- and grants the lock to those who are next. Those `asking`, a list, read the answer, and get their whole TTL; others are
-- handed the lock for their claim window. Returns the lock, as it is to be saved, and its first waiter.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_settle(
    lock_name VARBINARY(2049), asking LONGTEXT CHARACTER SET utf8mb4,
    INOUT lock_token BIGINT, INOUT lock_used BIGINT, INOUT lock_first BIGINT, lock_freed BIGINT, INOUT lock_front BIGINT,
    lock_back BIGINT, INOUT lock_touched BIGINT, OUT head_place BIGINT
)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DECLARE moment, ends BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
    DECLARE ended LONGTEXT CHARACTER SET utf8mb4;
    DECLARE head_owner VARBINARY(64);
    DECLARE head_kind VARBINARY(32);
    DECLARE head_expires, head_ttl, head_weight, head_capacity, head_claim BIGINT;
    DECLARE head_barge, head_asks BOOLEAN;
    DECLARE due BOOLEAN DEFAULT lock_used > 0 AND lock_first <= moment;
    IF due THEN
        SELECT GROUP_CONCAT(HEX(e.owner)) INTO ended FROM holdfast_entry AS e
            WHERE e.name = lock_name AND e.place = 0 AND e.expires <= moment;
        IF ended IS NOT NULL THEN
            CALL holdfast_remove(ended, moment);
        END IF;
        SELECT COALESCE(SUM(e.weight), 0), COALESCE(MIN(e.expires), 0) INTO lock_used, lock_first
            FROM holdfast_entry AS e WHERE e.name = lock_name AND e.place = 0;
    END IF;
    queue: WHILE lock_back > lock_front DO
        SET head_place = NULL;
        SELECT e.owner, e.place, e.expires, e.ttl, e.weight, e.capacity, e.kind, e.claim, e.barge
            INTO head_owner, head_place, head_expires, head_ttl, head_weight, head_capacity, head_kind, head_claim,
                head_barge
            FROM holdfast_entry AS e WHERE e.name = lock_name AND e.place > lock_front ORDER BY e.place LIMIT 1;
        IF head_place IS NULL THEN
            SET lock_front = lock_back;
            LEAVE queue;
        END IF;
        IF head_expires <= moment THEN
            DELETE FROM holdfast_entry WHERE owner = head_owner;
            SET lock_front = head_place;
            ITERATE queue;
        END IF;
        IF lock_used + head_weight > head_capacity THEN
            LEAVE queue;
        END IF;
        SET head_asks = COALESCE(FIND_IN_SET(HEX(head_owner), asking) > 0, FALSE);
        IF head_barge AND NOT head_asks THEN
            -- It has the claim window to come and take the lock. If it is frozen, it is passed over.
            UPDATE holdfast_entry AS e SET e.expires = LEAST(e.expires, moment + e.claim) WHERE e.owner = head_owner;
            LEAVE queue;
        END IF;
        SET lock_token = GREATEST(lock_token + 1, moment);
        IF head_kind = 'semaphore' THEN
            CALL holdfast_mint(lock_name, head_capacity, lock_freed, lock_token, lock_token);
        END IF;
        SET ends = moment + IF(head_asks, head_ttl, LEAST(head_claim, head_ttl));
        UPDATE holdfast_entry AS e SET e.place = 0, e.token = lock_token, e.since = moment, e.expires = ends,
                e.slot = IF(head_kind = 'semaphore', lock_token MOD head_capacity, NULL)
            WHERE e.owner = head_owner;
        IF ROW_COUNT() = 0 THEN
            -- A cleaner has removed it at this moment.
            SET lock_front = head_place, head_place = NULL;
            ITERATE queue;
        END IF;
        SET lock_first = IF(lock_used = 0, ends, LEAST(lock_first, ends));
        SET lock_used = lock_used + head_weight;
        SET lock_front = head_place;
        SET lock_touched = moment;
        SET head_place = NULL;
        IF head_kind = 'election' THEN
            CALL holdfast_note(lock_name, lock_token, lock_token, head_owner);
        END IF;
    END WHILE;
    IF due AND lock_used = 0 THEN
        CALL holdfast_vacate(lock_name, lock_token, lock_touched);
    END IF;
END
$$

-- Grants a lock to those of `owners` that wait for it and may overtake: the first in the queue was left to come by itself.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_overtake(
    lock_name VARBINARY(2049), owners LONGTEXT CHARACTER SET utf8mb4, moment BIGINT,
    INOUT lock_token BIGINT, INOUT lock_used BIGINT, INOUT lock_first BIGINT, lock_freed BIGINT, INOUT lock_touched BIGINT
)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DECLARE ask_owner VARBINARY(64);
    DECLARE ask_kind VARBINARY(32);
    DECLARE ask_ttl, ask_weight, ask_capacity BIGINT;
    DECLARE done BOOLEAN DEFAULT FALSE;
    DECLARE waiters CURSOR FOR
        SELECT e.owner, e.kind, e.ttl, e.weight, e.capacity
            FROM JSON_TABLE(owners, '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET ascii PATH '$')) AS c
                STRAIGHT_JOIN holdfast_entry AS e ON e.owner = UNHEX(c.owner)
            WHERE e.name = lock_name AND e.place > 0 AND e.barge AND e.expires > moment ORDER BY e.place;
    OPEN waiters;
    queue: LOOP
        BEGIN
            DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = TRUE;
            FETCH waiters INTO ask_owner, ask_kind, ask_ttl, ask_weight, ask_capacity;
        END;
        IF done THEN
            LEAVE queue;
        END IF;
        IF lock_used + ask_weight > ask_capacity THEN
            ITERATE queue;
        END IF;
        SET lock_token = GREATEST(lock_token + 1, moment);
        IF ask_kind = 'semaphore' THEN
            CALL holdfast_mint(lock_name, ask_capacity, lock_freed, lock_token, lock_token);
        END IF;
        UPDATE holdfast_entry AS e SET e.place = 0, e.token = lock_token, e.since = moment, e.expires = moment + ask_ttl,
                e.slot = IF(ask_kind = 'semaphore', lock_token MOD ask_capacity, NULL)
            WHERE e.owner = ask_owner;
        IF ROW_COUNT() = 0 THEN
            ITERATE queue;
        END IF;
        SET lock_first = IF(lock_used = 0, moment + ask_ttl, LEAST(lock_first, moment + ask_ttl));
        SET lock_used = lock_used + ask_weight;
        SET lock_touched = moment;
        IF ask_kind = 'election' THEN
            CALL holdfast_note(lock_name, lock_token, lock_token, ask_owner);
        END IF;
    END LOOP;
    CLOSE waiters;
END
$$
