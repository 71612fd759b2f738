-- What looks at locks, and the cleaner. See rules.sql for what they have in common.

-- Looks after waiters: returns the tokens of those of these owners that hold their lock, and 0 for one that is the first
-- in its queue, and may come and take the lock, because it is free, or observes an election that has changed.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_look(owners LONGTEXT CHARACTER SET utf8mb4)
SQL SECURITY INVOKER READS SQL DATA
BEGIN
    SET SESSION time_zone = '+00:00';
    SELECT e.owner, e.token
        FROM JSON_TABLE(owners, '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET ascii PATH '$[0]')) AS c
            STRAIGHT_JOIN holdfast_entry AS e ON e.owner = UNHEX(c.owner)
        WHERE e.place = 0 AND e.expires > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)
    UNION ALL SELECT e.owner, 0
        FROM JSON_TABLE(owners, '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET ascii PATH '$[0]')) AS c
            STRAIGHT_JOIN holdfast_entry AS e ON e.owner = UNHEX(c.owner)
            STRAIGHT_JOIN holdfast_lock AS l ON l.name = e.name
        WHERE e.place > 0 AND e.barge AND l.used + e.weight <= e.capacity AND NOT EXISTS (
            SELECT 1 FROM holdfast_entry AS o
                WHERE o.name = e.name AND o.place > l.front AND o.place < e.place
        )
    UNION ALL SELECT o.owner, 0
        FROM JSON_TABLE(owners, '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET ascii PATH '$[0]')) AS c
            STRAIGHT_JOIN holdfast_observer AS o ON o.owner = UNHEX(c.owner)
        WHERE EXISTS (SELECT 1 FROM holdfast_change AS h WHERE h.name = o.name AND h.number > o.seen);
END
$$

-- Returns the holders and waiters of the locks from `first_name` up to `last_name`, without it; and of each lock its token.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_list(first_name VARBINARY(4096), last_name VARBINARY(4096))
SQL SECURITY INVOKER READS SQL DATA
BEGIN
    DECLARE moment BIGINT;
    SET SESSION time_zone = '+00:00';
    SET SESSION max_sort_length = 4096;
    SET moment = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
    SELECT e.name, l.token, e.owner, e.place, e.token, e.expires - moment, e.weight, e.capacity, e.kind, e.since, e.host,
            e.pid, e.label, e.ttl
        FROM holdfast_entry AS e JOIN holdfast_lock AS l ON l.name = e.name
        WHERE e.name >= first_name AND e.name < last_name AND e.place >= 0 AND e.expires > moment
        ORDER BY e.name, e.place, e.token;
END
$$

-- Returns the last token of a lock; of one that has no row, a token that none of its grants exceeded.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_token(lock_name VARBINARY(2049))
SQL SECURITY INVOKER READS SQL DATA
BEGIN
    SELECT COALESCE(
        (SELECT l.token FROM holdfast_lock AS l WHERE l.name = lock_name), (SELECT s.floor FROM holdfast_store AS s)
    );
END
$$

-- Cleans: goes on from where the last cleaner stopped, through `most` locks, and removes those that nobody has used for
-- `unused`, with the changes of elections among them; and observers whose time is over. The tokens of those locks stay below
-- the floor, from which a new row of the same name begins. One cleaner at a time; nobody waits for it for long, and it waits for nobody. Returns the number of locks that it removed.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_clean(wait_ms BIGINT, most BIGINT, unused BIGINT)
SQL SECURITY INVOKER MODIFIES SQL DATA
step: BEGIN
    DECLARE moment, highest, removed BIGINT;
    DECLARE start, stop VARBINARY(2049);
    DECLARE listed LONGTEXT CHARACTER SET utf8mb4;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    CALL holdfast_begin(wait_ms);
    SELECT s.cleaned INTO start FROM holdfast_store AS s WHERE s.id = 0 FOR UPDATE SKIP LOCKED;
    IF start IS NULL THEN
        COMMIT;
        SELECT 0;
        LEAVE step;
    END IF;
    SET moment = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
    DELETE FROM holdfast_entry WHERE name = '' AND place >= -moment AND place < 0 ORDER BY place LIMIT most;
    SELECT MAX(n.name) INTO stop
        FROM (SELECT l.name FROM holdfast_lock AS l WHERE l.name > start ORDER BY l.name LIMIT most) AS n;
    SELECT GROUP_CONCAT(HEX(n.owner)) INTO listed
        FROM (
            SELECT e.owner FROM holdfast_entry AS e
                WHERE e.name > start AND e.name <= stop AND e.place >= 0 AND e.expires <= moment LIMIT 10000
        ) AS n;
    IF listed IS NOT NULL THEN
        CALL holdfast_remove(listed, moment);
    END IF;
    SELECT GROUP_CONCAT(CONCAT('"', HEX(l.name), '"')), MAX(l.token), COUNT(*) INTO listed, highest, removed
        FROM holdfast_lock AS l
        WHERE l.name > start AND l.name <= stop AND l.touched < moment - unused AND l.token < moment
            AND NOT EXISTS (SELECT 1 FROM holdfast_entry AS e WHERE e.name = l.name)
        FOR UPDATE SKIP LOCKED;
    IF listed IS NOT NULL THEN
        DELETE l
            FROM JSON_TABLE(CONCAT('[', listed, ']'), '$[*]' COLUMNS (name VARCHAR(4098) CHARACTER SET ascii PATH '$')) AS c
                STRAIGHT_JOIN holdfast_lock AS l ON l.name = UNHEX(c.name);
        DELETE h
            FROM JSON_TABLE(CONCAT('[', listed, ']'), '$[*]' COLUMNS (name VARCHAR(4098) CHARACTER SET ascii PATH '$')) AS c
                STRAIGHT_JOIN holdfast_change AS h ON h.name = UNHEX(c.name);
    END IF;
    DELETE FROM holdfast_observer WHERE expires <= moment ORDER BY expires LIMIT most;
    UPDATE holdfast_store AS s SET s.cleaned = COALESCE(stop, ''), s.floor = GREATEST(s.floor, COALESCE(highest, 0))
        WHERE s.id = 0;
    COMMIT;
    SELECT removed;
END
$$
