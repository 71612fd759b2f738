-- The steps that change a lock. See rules.sql for what they have in common.

-- Grants a lock, or puts the owner into the queue, or refuses it. The answer is one of
--   granted   with the token
--   queued    with the time for which the holders may still hold it; `busy` if it was not to be put into the queue
--   kind      it is in use as another kind, or with another capacity, which are told
--   used      this owner asked for something else before
--   left      this owner gave up before its request arrived
-- It is for a step that has begun, and ends it.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_ask(
    lock_name VARBINARY(2049), asking VARBINARY(64), ask_ttl BIGINT, ask_weight BIGINT,
    ask_capacity BIGINT, ask_kind VARBINARY(32), ask_queue BOOLEAN, ask_barge BOOLEAN, ask_claim BIGINT,
    ask_patience BIGINT, ask_host VARBINARY(1024), ask_pid BIGINT, ask_label VARBINARY(4096),
    OUT answer VARCHAR(10) CHARACTER SET utf8mb4, OUT number BIGINT, OUT present_kind VARBINARY(32),
    OUT present_capacity BIGINT
)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DECLARE moment, head_place BIGINT;
    DECLARE lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched BIGINT;
    DECLARE known_place, known_token, known_weight, known_capacity BIGINT;
    DECLARE known_name VARBINARY(2049);
    DECLARE known_kind VARBINARY(32);
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

    SET number = 0;
    SELECT e.name, e.place, e.token, e.weight, e.capacity, e.kind
        INTO known_name, known_place, known_token, known_weight, known_capacity, known_kind
        FROM holdfast_entry AS e WHERE e.owner = asking;
    IF known_place IS NOT NULL THEN
        -- It asks again, because the answer was lost; or it has given up since.
        IF known_place < 0 THEN
            SET answer = 'left';
        ELSEIF known_name <> lock_name OR known_weight <> ask_weight OR known_capacity <> ask_capacity
                OR known_kind <> ask_kind THEN
            SET answer = 'used';
        ELSEIF known_place = 0 THEN
            SET answer = 'granted', number = known_token;
            UPDATE holdfast_entry AS e SET e.expires = GREATEST(e.expires, moment + ask_ttl) WHERE e.owner = asking;
        ELSEIF ask_queue THEN
            SET answer = 'queued';
            UPDATE holdfast_entry AS e SET e.expires = moment + e.patience WHERE e.owner = asking;
        ELSE
            SET answer = 'busy';
        END IF;
    ELSE
        IF lock_used > 0 OR head_place IS NOT NULL THEN
            SELECT e.kind, e.capacity INTO present_kind, present_capacity FROM holdfast_entry AS e
                WHERE e.name = lock_name AND e.place = IF(lock_used > 0, 0, head_place) LIMIT 1;
        END IF;
        IF present_kind <> ask_kind OR present_capacity <> ask_capacity THEN
            SET answer = 'kind';
        ELSEIF lock_used + ask_weight <= ask_capacity AND (head_place IS NULL OR ask_barge) THEN
            SET answer = 'granted', number = GREATEST(lock_token + 1, moment);
            IF ask_kind = 'semaphore' THEN
                CALL holdfast_mint(lock_name, ask_capacity, lock_freed, number, number);
            END IF;
            SET lock_token = number;
            SET lock_first = IF(lock_used = 0, moment + ask_ttl, LEAST(lock_first, moment + ask_ttl));
            SET lock_used = lock_used + ask_weight;
            INSERT INTO holdfast_entry VALUES (
                asking, lock_name, 0, number, IF(ask_kind = 'semaphore', number MOD ask_capacity, NULL),
                moment + ask_ttl, ask_ttl, ask_weight, ask_capacity, ask_kind, ask_barge, ask_claim, ask_patience, moment,
                ask_host, ask_pid, ask_label
            );
            IF ask_kind = 'election' THEN
                CALL holdfast_note(lock_name, number, number, asking);
            END IF;
        ELSEIF ask_queue THEN
            SET answer = 'queued', lock_back = lock_back + 1;
            INSERT INTO holdfast_entry VALUES (
                asking, lock_name, lock_back, 0, NULL, moment + ask_patience, ask_ttl, ask_weight, ask_capacity, ask_kind,
                ask_barge, ask_claim, ask_patience, moment, ask_host, ask_pid, ask_label
            );
        ELSE
            SET answer = 'busy';
        END IF;
        SET lock_touched = moment;
    END IF;
    IF answer IN ('queued', 'busy') THEN
        SELECT GREATEST(0, COALESCE(MAX(e.expires), 0) - moment) INTO number
            FROM holdfast_entry AS e WHERE e.name = lock_name AND e.place = 0;
    END IF;
    UPDATE holdfast_lock AS l
        SET l.token = lock_token, l.used = lock_used, l.first = lock_first, l.front = lock_front, l.back = lock_back,
            l.touched = lock_touched
        WHERE l.name = lock_name;
END
$$

-- Asks for one lock. Nobody is woken: `ask_channel` is there because other databases wake on it.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_acquire(
    wait_ms BIGINT, lock_name VARBINARY(2049), asking VARBINARY(64), ask_ttl BIGINT, ask_weight BIGINT,
    ask_capacity BIGINT, ask_kind VARBINARY(32), ask_queue BOOLEAN, ask_barge BOOLEAN, ask_claim BIGINT,
    ask_patience BIGINT, ask_channel VARBINARY(64), ask_host VARBINARY(1024), ask_pid BIGINT, ask_label VARBINARY(4096)
)
SQL SECURITY INVOKER MODIFIES SQL DATA
step: BEGIN
    DECLARE moment, number, present_capacity BIGINT;
    DECLARE present_kind VARBINARY(32);
    DECLARE answer VARCHAR(10) CHARACTER SET utf8mb4;
    DECLARE repeated BOOLEAN DEFAULT FALSE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    CALL holdfast_begin(wait_ms);
    -- Nobody holds it, nobody waits: the most frequent case, in two queries. It does what `holdfast_ask` would do. The
    -- assignments are done in this order, under the row's lock, and the token is kept in mind by LAST_INSERT_ID.
    UPDATE holdfast_lock AS l
        SET l.touched = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED),
            l.token = LAST_INSERT_ID(GREATEST(l.token + 1, l.touched)), l.used = ask_weight, l.first = l.touched + ask_ttl
        WHERE l.name = lock_name AND l.used = 0 AND l.front = l.back;
    IF ROW_COUNT() = 1 THEN
        SET number = LAST_INSERT_ID(), moment = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
        BEGIN
            DECLARE CONTINUE HANDLER FOR 1062 SET repeated = TRUE;
            INSERT INTO holdfast_entry VALUES (
                asking, lock_name, 0, number, IF(ask_kind = 'semaphore', number MOD ask_capacity, NULL),
                moment + ask_ttl, ask_ttl, ask_weight, ask_capacity, ask_kind, ask_barge, ask_claim, ask_patience, moment,
                ask_host, ask_pid, ask_label
            );
        END;
        IF NOT repeated THEN
            IF ask_kind = 'election' THEN
                CALL holdfast_note(lock_name, number, number, asking);
            END IF;
            COMMIT;
            SELECT 'granted', number;
            LEAVE step;
        END IF;
        -- It is known already, and is told why this is no grant.
        ROLLBACK;
        CALL holdfast_begin(wait_ms);
    END IF;
    CALL holdfast_ask(
        lock_name, asking, ask_ttl, ask_weight, ask_capacity, ask_kind, ask_queue, ask_barge, ask_claim, ask_patience,
        ask_host, ask_pid, ask_label, answer, number, present_kind, present_capacity
    );
    COMMIT;
    SELECT answer, number, present_kind, present_capacity;
END
$$

-- Renews leases that have not ended: of each of `claims` the lock, the owner and the TTL. Returns the owners of those, and
-- their tokens.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_renew(wait_ms BIGINT, claims LONGTEXT CHARACTER SET utf8mb4)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DECLARE renewed LONGTEXT CHARACTER SET utf8mb4;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    CALL holdfast_begin(wait_ms);
    -- Those that are locked here are the ones that are renewed and returned: another may be granted in between.
    SELECT CONCAT('[', GROUP_CONCAT(CONCAT('["', HEX(e.owner), '",', e.token, ',', c.ttl, ']')), ']') INTO renewed
        FROM JSON_TABLE(claims, '$[*]' COLUMNS (
            name VARCHAR(4098) CHARACTER SET ascii PATH '$[0]', owner VARCHAR(128) CHARACTER SET ascii PATH '$[1]', ttl BIGINT PATH '$[2]'
        )) AS c STRAIGHT_JOIN holdfast_entry AS e ON e.owner = UNHEX(c.owner)
        WHERE e.name = UNHEX(c.name) AND e.place = 0 AND e.expires > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)
        FOR UPDATE /*!80001 OF e */;
    SET renewed = COALESCE(renewed, '[]');
    UPDATE JSON_TABLE(renewed, '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET ascii PATH '$[0]', ttl BIGINT PATH '$[2]')) AS c
        STRAIGHT_JOIN holdfast_entry AS e ON e.owner = UNHEX(c.owner)
        SET e.expires = GREATEST(e.expires, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) + c.ttl);
    COMMIT;
    SELECT UNHEX(c.owner), c.token
        FROM JSON_TABLE(renewed, '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET ascii PATH '$[0]', token BIGINT PATH '$[1]')) AS c;
END
$$

-- Keeps places in queues: of each of `claims` the lock and the owner. Does what is due at those locks. Returns, for each owner
-- that holds or waits, its token (0: it waits) and the time for which the holders may still hold the lock.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_beat(
    wait_ms BIGINT, claims LONGTEXT CHARACTER SET utf8mb4, wake_on VARBINARY(64)
)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DECLARE moment, head_place, longest BIGINT;
    DECLARE lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched BIGINT;
    DECLARE lock_name VARBINARY(2049);
    DECLARE asking, owners, handed, some, answers LONGTEXT CHARACTER SET utf8mb4;
    DECLARE done BOOLEAN DEFAULT FALSE;
    -- In the order of names: nobody then waits for a row of somebody who waits for one of ours.
    DECLARE claimed CURSOR FOR
        SELECT UNHEX(c.name), GROUP_CONCAT(UPPER(c.owner))
            FROM JSON_TABLE(claims, '$[*]' COLUMNS (
                name VARCHAR(4098) CHARACTER SET ascii PATH '$[0]', owner VARCHAR(128) CHARACTER SET ascii PATH '$[1]'
            )) AS c GROUP BY c.name ORDER BY c.name;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    CALL holdfast_begin(wait_ms);
    OPEN claimed;
    locks: LOOP
        BEGIN
            DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = TRUE;
            FETCH claimed INTO lock_name, asking;
        END;
        IF done THEN
            LEAVE locks;
        END IF;
        SET lock_token = NULL, owners = CONCAT('["', REPLACE(asking, ',', '","'), '"]');
        SELECT l.token, l.used, l.first, l.freed, l.front, l.back, l.touched
            INTO lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched
            FROM holdfast_lock AS l WHERE l.name = lock_name FOR UPDATE;
        IF lock_token IS NULL THEN
            ITERATE locks;
        END IF;
        SET moment = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
        -- By a list of its own: one that holds the lock meanwhile is not to be waited for.
        SELECT GROUP_CONCAT(CONCAT('"', c.owner, '"')) INTO some
            FROM JSON_TABLE(owners, '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET ascii PATH '$')) AS c
                STRAIGHT_JOIN holdfast_entry AS e ON e.owner = UNHEX(c.owner)
            WHERE e.name = lock_name AND e.place > 0 AND e.expires > moment;
        IF some IS NOT NULL THEN
            UPDATE JSON_TABLE(CONCAT('[', some, ']'), '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET ascii PATH '$')) AS c
                STRAIGHT_JOIN holdfast_entry AS e ON e.owner = UNHEX(c.owner)
                SET e.expires = moment + e.patience;
        END IF;
        CALL holdfast_settle(
            lock_name, asking, lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched, head_place
        );
        IF some IS NOT NULL AND head_place IS NOT NULL THEN
            CALL holdfast_overtake(
                lock_name, owners, moment, lock_token, lock_used, lock_first, lock_freed, lock_touched
            );
        END IF;
        UPDATE holdfast_lock AS l
            SET l.token = lock_token, l.used = lock_used, l.first = lock_first, l.front = lock_front,
                l.touched = lock_touched
            WHERE l.name = lock_name;
        -- One that was handed the lock before is told, and has its whole TTL from now.
        SELECT GROUP_CONCAT(CONCAT('"', c.owner, '"')) INTO handed
            FROM JSON_TABLE(owners, '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET ascii PATH '$')) AS c
                STRAIGHT_JOIN holdfast_entry AS e ON e.owner = UNHEX(c.owner)
            WHERE e.name = lock_name AND e.place = 0 AND e.expires > moment FOR UPDATE /*!80001 OF e */ SKIP LOCKED;
        IF handed IS NOT NULL THEN
            UPDATE JSON_TABLE(CONCAT('[', handed, ']'), '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET ascii PATH '$')) AS c
                STRAIGHT_JOIN holdfast_entry AS e ON e.owner = UNHEX(c.owner)
                SET e.expires = GREATEST(e.expires, moment + e.ttl);
        END IF;
        SELECT GREATEST(0, COALESCE(MAX(e.expires), 0) - moment) INTO longest
            FROM holdfast_entry AS e WHERE e.name = lock_name AND e.place = 0;
        SELECT GROUP_CONCAT(CONCAT('["', c.owner, '",', e.token, ',', longest, ']')) INTO some
            FROM JSON_TABLE(owners, '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET ascii PATH '$')) AS c
                STRAIGHT_JOIN holdfast_entry AS e ON e.owner = UNHEX(c.owner)
            WHERE e.name = lock_name AND e.place >= 0 AND e.expires > moment;
        SET answers = CONCAT_WS(',', answers, some);
    END LOOP;
    CLOSE claimed;
    COMMIT;
    SELECT UNHEX(c.owner), c.token, c.longest
        FROM JSON_TABLE(CONCAT('[', COALESCE(answers, ''), ']'), '$[*]' COLUMNS (
            owner VARCHAR(128) CHARACTER SET ascii PATH '$[0]', token BIGINT PATH '$[1]', longest BIGINT PATH '$[2]'
        )) AS c;
END
$$

-- Frees a lease, or leaves the queue, and hands on. Returns whether a lease was freed that had not ended. An owner whose
-- request, or a copy of it, may still be under way is kept in mind for `remember`: that request is refused.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_release(
    wait_ms BIGINT, lock_name VARBINARY(2049), leaving VARBINARY(64), remember BIGINT
)
SQL SECURITY INVOKER MODIFIES SQL DATA
step: BEGIN
    DECLARE moment, head_place BIGINT;
    DECLARE lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched BIGINT;
    DECLARE gone_place, gone_weight, gone_expires, gone_slot BIGINT;
    DECLARE gone_kind VARBINARY(32);
    DECLARE repeated BOOLEAN;
    DECLARE held BOOLEAN DEFAULT FALSE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    CALL holdfast_begin(wait_ms);
    IF remember = 0 THEN
        -- The most frequent case, in two queries: it holds a lock that is no semaphore, with a weight of 1, and nobody
        -- else holds it or waits. It does what all below would do.
        DELETE FROM holdfast_entry
            WHERE owner = leaving AND name = lock_name AND place = 0 AND weight = 1 AND slot IS NULL AND kind <> 'election'
                AND expires > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
        IF ROW_COUNT() = 1 THEN
            SET gone_place = 0, gone_weight = 1, held = TRUE;
            UPDATE holdfast_lock AS l SET l.used = 0, l.freed = -1
                WHERE l.name = lock_name AND l.used = 1 AND l.front = l.back;
            IF ROW_COUNT() = 1 THEN
                COMMIT;
                SELECT TRUE;
                LEAVE step;
            END IF;
        END IF;
    END IF;
    IF gone_place IS NULL THEN
        SELECT e.place INTO gone_place FROM holdfast_entry AS e WHERE e.owner = leaving AND e.name = lock_name;
        IF gone_place = 0 THEN
            SET gone_place = NULL;
            SELECT e.place, e.weight, e.expires, e.slot, e.kind
                INTO gone_place, gone_weight, gone_expires, gone_slot, gone_kind
                FROM holdfast_entry AS e WHERE e.owner = leaving AND e.name = lock_name FOR UPDATE;
            CALL holdfast_leave(lock_name, leaving, remember);
        ELSE
            SET gone_place = NULL;
        END IF;
    END IF;

    search: LOOP
        SELECT l.token, l.used, l.first, l.freed, l.front, l.back, l.touched
            INTO lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched
            FROM holdfast_lock AS l WHERE l.name = lock_name FOR UPDATE;
        IF gone_place = 0 THEN
            LEAVE search;
        END IF;
        IF lock_token IS NOT NULL THEN
            SELECT e.place, e.weight, e.expires, e.slot, e.kind
                INTO gone_place, gone_weight, gone_expires, gone_slot, gone_kind
                FROM holdfast_entry AS e WHERE e.owner = leaving AND e.name = lock_name AND e.place >= 0 FOR UPDATE;
            IF gone_place IS NOT NULL THEN
                CALL holdfast_leave(lock_name, leaving, remember);
                LEAVE search;
            END IF;
        END IF;
        IF remember = 0 THEN
            COMMIT;
            SELECT FALSE;
            LEAVE step;
        END IF;
        SET moment = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED), repeated = FALSE;
        BEGIN
            DECLARE CONTINUE HANDLER FOR 1062 SET repeated = TRUE;
            INSERT INTO holdfast_entry VALUES (
                leaving, '', -(moment + remember), 0, NULL, moment + remember, 0, 0, 0, '', FALSE, 0, 0, moment, '', 0, ''
            );
        END;
        IF NOT repeated OR EXISTS (
            SELECT 1 FROM holdfast_entry AS e WHERE e.owner = leaving AND e.name <> lock_name
        ) THEN
            COMMIT;
            SELECT FALSE;
            LEAVE step;
        END IF;
        -- Its request arrived at this moment.
    END LOOP;
    SET moment = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
    IF gone_place = 0 THEN
        SET lock_used = GREATEST(lock_used - gone_weight, 0);
        SET lock_freed = COALESCE(gone_slot, -1);
    END IF;
    IF lock_back > lock_front OR (lock_used > 0 AND lock_first <= moment) THEN
        CALL holdfast_settle(
            lock_name, NULL, lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched, head_place
        );
    END IF;
    IF gone_kind = 'election' AND gone_place = 0 AND lock_used = 0 THEN
        CALL holdfast_vacate(lock_name, lock_token, lock_touched);
    END IF;
    UPDATE holdfast_lock AS l
        SET l.token = lock_token, l.used = lock_used, l.first = lock_first, l.freed = lock_freed, l.front = lock_front,
            l.touched = lock_touched
        WHERE l.name = lock_name;
    COMMIT;
    SELECT held OR (gone_place = 0 AND gone_expires > moment);
END
$$

-- Ends every lease on a lock, raises its token, and hands on. Returns whether anybody held it.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_break(wait_ms BIGINT, lock_name VARBINARY(2049), breaking VARBINARY(4096), above BIGINT)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DECLARE moment, head_place BIGINT;
    DECLARE lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched BIGINT;
    DECLARE owners LONGTEXT CHARACTER SET utf8mb4;
    DECLARE broken LONGBLOB;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    CALL holdfast_begin(wait_ms);
    SELECT GROUP_CONCAT(CONCAT('"', HEX(e.owner), '"')) INTO owners
        FROM holdfast_entry AS e WHERE e.name = lock_name AND e.place = 0;
    IF owners IS NOT NULL THEN
        SET owners = CONCAT('[', owners, ']');
        SELECT GROUP_CONCAT(CONCAT(e.owner, ' (token ', e.token, ')') SEPARATOR ', ') INTO broken
            FROM JSON_TABLE(owners, '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET ascii PATH '$')) AS c
                STRAIGHT_JOIN holdfast_entry AS e ON e.owner = UNHEX(c.owner)
            WHERE e.name = lock_name AND e.expires > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) FOR UPDATE /*!80001 OF e */;
        DELETE e
            FROM JSON_TABLE(owners, '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET ascii PATH '$')) AS c
                STRAIGHT_JOIN holdfast_entry AS e ON e.owner = UNHEX(c.owner)
            WHERE e.name = lock_name;
    END IF;
    SELECT l.token, l.used, l.first, l.freed, l.front, l.back, l.touched
        INTO lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched
        FROM holdfast_lock AS l WHERE l.name = lock_name FOR UPDATE;
    IF lock_token IS NULL THEN
        CALL holdfast_make(
            lock_name, lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched
        );
    END IF;
    SET moment = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
    -- Somebody may have been granted the lock since.
    SELECT COALESCE(SUM(e.weight), 0), COALESCE(MIN(e.expires), 0) INTO lock_used, lock_first
        FROM holdfast_entry AS e WHERE e.name = lock_name AND e.place = 0;
    SET lock_token = GREATEST(lock_token + 1, moment, above), lock_touched = moment;
    CALL holdfast_settle(
        lock_name, NULL, lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched, head_place
    );
    IF lock_used = 0 THEN
        CALL holdfast_vacate(lock_name, lock_token, lock_touched);
    END IF;
    UPDATE holdfast_lock AS l
        SET l.token = lock_token, l.used = lock_used, l.first = lock_first, l.front = lock_front, l.touched = lock_touched
        WHERE l.name = lock_name;
    INSERT INTO holdfast_audit (at, name, actor, holders) VALUES (SYSDATE(6), lock_name, breaking, COALESCE(broken, ''));
    COMMIT;
    SELECT broken IS NOT NULL;
END
$$
