-- The changes of elections, which are locks of the kind `election`, and who observes them. Changes are noted by the steps
-- that grant, amend or end a lease, under the lock's row; their numbers are tokens of that lock.

-- Notes a change, and keeps the last 32: the owner `leader` leads, as its entry says, or nobody if it is empty.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_note(
    lock_name VARBINARY(2049), its_number BIGINT, its_token BIGINT, leader VARBINARY(64)
)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DECLARE moment BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
    DECLARE last BIGINT;
    IF leader = '' THEN
        INSERT INTO holdfast_change VALUES (lock_name, its_number, its_token, '', '', 0, '', moment);
    ELSE
        INSERT INTO holdfast_change
            SELECT lock_name, its_number, its_token, leader, e.host, e.pid, e.label, moment FROM holdfast_entry AS e
                WHERE e.owner = leader;
    END IF;
    SELECT h.number INTO last FROM holdfast_change AS h
        WHERE h.name = lock_name ORDER BY h.number DESC LIMIT 1 OFFSET 32;
    IF last IS NOT NULL THEN
        DELETE FROM holdfast_change WHERE name = lock_name AND number <= last;
    END IF;
END
$$

-- Notes that nobody leads any more, if somebody did.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_vacate(
    lock_name VARBINARY(2049), INOUT lock_token BIGINT, INOUT lock_touched BIGINT
)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DECLARE last BIGINT;
    DECLARE leader VARBINARY(64) DEFAULT '';
    SELECT h.owner, h.token INTO leader, last FROM holdfast_change AS h
        WHERE h.name = lock_name ORDER BY h.number DESC LIMIT 1;
    IF leader <> '' THEN
        SET lock_touched = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
        SET lock_token = GREATEST(lock_token + 1, lock_touched);
        CALL holdfast_note(lock_name, lock_token, last, '');
    END IF;
END
$$

-- Does what is due at an election. Keeps the owner in mind for `lasting`, so that it is looked after. Returns a row with the
-- number 0 and the time that the leader has, and the changes with a number above `after`; of 0, the latest alone.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_observe(
    wait_ms BIGINT, lock_name VARBINARY(2049), asking VARBINARY(64), after BIGINT, lasting BIGINT, wake_on VARBINARY(64)
)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DECLARE moment, head_place, latest, longest BIGINT;
    DECLARE lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    CALL holdfast_begin(wait_ms);
    SELECT l.token, l.used, l.first, l.freed, l.front, l.back, l.touched
        INTO lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched
        FROM holdfast_lock AS l WHERE l.name = lock_name FOR UPDATE;
    IF lock_token IS NULL THEN
        CALL holdfast_make(
            lock_name, lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched
        );
    END IF;
    SET moment = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
    IF lock_back > lock_front OR (lock_used > 0 AND lock_first <= moment) THEN
        CALL holdfast_settle(
            lock_name, NULL, lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched, head_place
        );
    END IF;
    SET lock_touched = IF(lock_touched = 0, moment, lock_touched);
    UPDATE holdfast_lock AS l
        SET l.token = lock_token, l.used = lock_used, l.first = lock_first, l.front = lock_front, l.touched = lock_touched
        WHERE l.name = lock_name;
    SELECT COALESCE(MAX(h.number), 0) INTO latest FROM holdfast_change AS h WHERE h.name = lock_name;
    INSERT INTO holdfast_observer VALUES (asking, lock_name, latest, moment + lasting)
        ON DUPLICATE KEY UPDATE name = lock_name, seen = latest, expires = moment + lasting;
    SELECT GREATEST(0, COALESCE(MAX(e.expires), 0) - moment) INTO longest
        FROM holdfast_entry AS e WHERE e.name = lock_name AND e.place = 0;
    COMMIT;
    SELECT 0, 0, '', '', 0, '', longest
        UNION ALL SELECT h.number, h.token, h.owner, h.host, h.pid, h.label, h.at FROM holdfast_change AS h
            WHERE h.name = lock_name AND h.number > IF(after = 0, latest - 1, after) AND h.number <= latest ORDER BY 1;
END
$$

-- Forgets an observer.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_unobserve(leaving VARBINARY(64))
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DELETE FROM holdfast_observer WHERE owner = leaving;
END
$$
