-- The steps that change a lease that is held, and the one that takes several locks. As a release does, those that change a
-- lease lock its entry first, then the lock's row.

-- Locks the entry of a holder whose lease has not ended, and returns what it says; nothing, if there is none.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_hold(
    lock_name VARBINARY(2049), holding VARBINARY(64), OUT held_token BIGINT, OUT held_slot BIGINT, OUT held_weight BIGINT,
    OUT held_capacity BIGINT, OUT held_kind VARBINARY(32), OUT held_label VARBINARY(4096)
)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DECLARE ends BIGINT;
    -- Nobody's place in the queue is locked.
    IF EXISTS (SELECT 1 FROM holdfast_entry AS e WHERE e.owner = holding AND e.name = lock_name AND e.place = 0) THEN
        SELECT e.token, e.slot, e.weight, e.capacity, e.kind, e.label, e.expires
            INTO held_token, held_slot, held_weight, held_capacity, held_kind, held_label, ends
            FROM holdfast_entry AS e WHERE e.owner = holding AND e.name = lock_name AND e.place = 0 FOR UPDATE;
        IF ends <= CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) THEN
            SET held_token = NULL;
        END IF;
    END IF;
END
$$

-- Changes a lease: to less weight, if that is not 0, and to another label. Hands on what it gave up. Returns false if the
-- lease has ended.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_amend(
    wait_ms BIGINT, lock_name VARBINARY(2049), holding VARBINARY(64), less_weight BIGINT, has_text BOOLEAN,
    other_text VARBINARY(4096)
)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DECLARE head_place, lighter BIGINT;
    DECLARE lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched BIGINT;
    DECLARE held_token, held_slot, held_weight, held_capacity BIGINT;
    DECLARE held_kind VARBINARY(32);
    DECLARE held_label VARBINARY(4096);
    DECLARE renamed BOOLEAN;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    CALL holdfast_begin(wait_ms);
    CALL holdfast_hold(lock_name, holding, held_token, held_slot, held_weight, held_capacity, held_kind, held_label);
    SET lighter = IF(less_weight > 0, LEAST(held_weight, less_weight), held_weight);
    SET renamed = has_text AND held_label <> other_text;
    IF held_token IS NOT NULL AND (lighter < held_weight OR renamed) THEN
        UPDATE holdfast_entry AS e SET e.weight = lighter, e.label = IF(has_text, other_text, e.label)
            WHERE e.owner = holding;
        SELECT l.token, l.used, l.first, l.freed, l.front, l.back, l.touched
            INTO lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched
            FROM holdfast_lock AS l WHERE l.name = lock_name FOR UPDATE;
        IF lighter < held_weight THEN
            SET lock_used = GREATEST(lock_used - held_weight + lighter, 0);
            CALL holdfast_settle(
                lock_name, NULL, lock_token, lock_used, lock_first, lock_freed, lock_front, lock_back, lock_touched, head_place
            );
        END IF;
        IF renamed AND held_kind = 'election' THEN
            SET lock_touched = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
            SET lock_token = GREATEST(lock_token + 1, lock_touched);
            CALL holdfast_note(lock_name, lock_token, held_token, holding);
        END IF;
        UPDATE holdfast_lock AS l
            SET l.token = lock_token, l.used = lock_used, l.first = lock_first, l.front = lock_front, l.touched = lock_touched
            WHERE l.name = lock_name;
    END IF;
    COMMIT;
    SELECT held_token IS NOT NULL;
END
$$

-- Lets a lease end after `lasting`, which may be earlier than it would have. Returns false if it has ended.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_detach(
    wait_ms BIGINT, lock_name VARBINARY(2049), holding VARBINARY(64), lasting BIGINT
)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DECLARE ends BIGINT;
    DECLARE held_token, held_slot, held_weight, held_capacity BIGINT;
    DECLARE held_kind VARBINARY(32);
    DECLARE held_label VARBINARY(4096);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    CALL holdfast_begin(wait_ms);
    CALL holdfast_hold(lock_name, holding, held_token, held_slot, held_weight, held_capacity, held_kind, held_label);
    IF held_token IS NOT NULL THEN
        SET ends = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) + lasting;
        UPDATE holdfast_entry AS e SET e.expires = ends, e.ttl = lasting WHERE e.owner = holding;
        -- A microsecond less, so that the row changes: by that another node of a Galera cluster knows of this step.
        UPDATE holdfast_lock AS l SET l.first = LEAST(l.first, ends) - 1 WHERE l.name = lock_name;
    END IF;
    COMMIT;
    SELECT held_token IS NOT NULL;
END
$$

-- Makes the lease of the owner `giver` that of the owner `asking`, with a new token. The answer is one of
--   granted   with the token
--   gone      the giver holds nothing
--   kind      its weight, kind or capacity is another; the last two are told
--   used, left   as of an acquire
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_adopt(
    wait_ms BIGINT, lock_name VARBINARY(2049), asking VARBINARY(64), giver VARBINARY(64), ask_ttl BIGINT, ask_weight BIGINT,
    ask_capacity BIGINT, ask_kind VARBINARY(32), ask_barge BOOLEAN, ask_claim BIGINT, ask_patience BIGINT,
    ask_channel VARBINARY(64), ask_host VARBINARY(1024), ask_pid BIGINT, ask_label VARBINARY(4096)
)
SQL SECURITY INVOKER MODIFIES SQL DATA
BEGIN
    DECLARE number BIGINT DEFAULT 0;
    DECLARE moment, known_place, known_token, known_weight, known_capacity, known_expires BIGINT;
    DECLARE held_token, held_slot, held_weight, held_capacity BIGINT;
    DECLARE known_name VARBINARY(2049);
    DECLARE held_kind, known_kind VARBINARY(32);
    DECLARE held_label VARBINARY(4096);
    DECLARE answer VARCHAR(10) CHARACTER SET utf8mb4;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    CALL holdfast_begin(wait_ms);
    CALL holdfast_hold(lock_name, giver, held_token, held_slot, held_weight, held_capacity, held_kind, held_label);
    -- Then, in a query of its own: a copy of this request may have been done meanwhile.
    SELECT e.name, e.place, e.token, e.weight, e.capacity, e.kind, e.expires
        INTO known_name, known_place, known_token, known_weight, known_capacity, known_kind, known_expires
        FROM holdfast_entry AS e WHERE e.owner = asking FOR UPDATE;
    SET moment = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
    IF known_place < 0 THEN
        SET answer = 'left';
    ELSEIF known_place > 0 OR known_name <> lock_name OR known_weight <> ask_weight OR known_capacity <> ask_capacity
            OR known_kind <> ask_kind THEN
        SET answer = 'used';
    ELSEIF known_place = 0 AND known_expires > moment THEN
        SET answer = 'granted', number = known_token;
        UPDATE holdfast_entry AS e SET e.expires = GREATEST(e.expires, moment + ask_ttl) WHERE e.owner = asking;
    ELSEIF known_place = 0 OR held_token IS NULL THEN
        SET answer = 'gone';
    ELSEIF held_kind <> ask_kind OR held_capacity <> ask_capacity OR held_weight <> ask_weight THEN
        SET answer = 'kind';
    ELSE
        SET answer = 'granted';
        SELECT GREATEST(l.token + 1, moment) INTO number FROM holdfast_lock AS l WHERE l.name = lock_name FOR UPDATE;
        SET moment = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
        SET number = GREATEST(number, moment);
        IF ask_kind = 'semaphore' THEN
            -- The slot is the remainder, and stays.
            SET number = number + (held_slot - number MOD ask_capacity + ask_capacity) MOD ask_capacity;
        END IF;
        UPDATE holdfast_entry AS e
            SET e.owner = asking, e.token = number, e.expires = moment + ask_ttl, e.ttl = ask_ttl, e.barge = ask_barge,
                e.claim = ask_claim, e.patience = ask_patience, e.since = moment, e.host = ask_host, e.pid = ask_pid,
                e.label = ask_label
            WHERE e.owner = giver;
        -- A copy of the giver's own request may still be under way: in ten minutes it is not any more.
        INSERT IGNORE INTO holdfast_entry VALUES (
            giver, '', -(moment + 600000000), 0, NULL, moment + 600000000, 0, 0, 0, '', FALSE, 0, 0, moment, '', 0, ''
        );
        UPDATE holdfast_lock AS l
            SET l.token = number, l.first = LEAST(l.first, moment + ask_ttl), l.touched = moment WHERE l.name = lock_name;
        IF ask_kind = 'election' THEN
            CALL holdfast_note(lock_name, number, number, asking);
        END IF;
    END IF;
    COMMIT;
    SELECT answer, number, held_kind, held_capacity;
END
$$

-- Grants several locks, or changes nothing: of each of `requests` the lock, the owner, and so on. Returns, for each, what an
-- acquire answers, and its place in the list; those before the last were not granted if the last was not.
CREATE PROCEDURE /*!80029 IF NOT EXISTS */ /*M!100103 IF NOT EXISTS */ holdfast_acquire_all(
    wait_ms BIGINT, ask_patience BIGINT, ask_channel VARBINARY(64), requests LONGTEXT CHARACTER SET utf8mb4
)
SQL SECURITY INVOKER MODIFIES SQL DATA
step: BEGIN
    DECLARE ask_place, ask_ttl, ask_weight, ask_capacity, ask_barge, ask_claim, ask_pid BIGINT;
    DECLARE number, present_capacity BIGINT;
    DECLARE lock_name VARBINARY(2049);
    DECLARE asking VARBINARY(64);
    DECLARE ask_kind, present_kind VARBINARY(32);
    DECLARE ask_host VARBINARY(1024);
    DECLARE ask_label VARBINARY(4096);
    DECLARE answer VARCHAR(10) CHARACTER SET utf8mb4;
    DECLARE answers LONGTEXT CHARACTER SET utf8mb4;
    DECLARE done BOOLEAN DEFAULT FALSE;
    -- In the order of names: nobody then waits for a row of somebody who waits for one of ours.
    DECLARE asked CURSOR FOR
        SELECT c.place, UNHEX(c.name), UNHEX(c.owner), c.ttl, c.weight, c.capacity, UNHEX(c.kind), c.barge, c.claim,
                UNHEX(c.host), c.pid, UNHEX(c.label)
            FROM JSON_TABLE(requests, '$[*]' COLUMNS (
                place FOR ORDINALITY,
                name VARCHAR(4098) CHARACTER SET ascii PATH '$[0]', owner VARCHAR(128) CHARACTER SET ascii PATH '$[1]',
                ttl BIGINT PATH '$[2]', weight BIGINT PATH '$[3]', capacity BIGINT PATH '$[4]',
                kind VARCHAR(64) CHARACTER SET ascii PATH '$[5]', barge BIGINT PATH '$[6]', claim BIGINT PATH '$[7]',
                host VARCHAR(2048) CHARACTER SET ascii PATH '$[8]', pid BIGINT PATH '$[9]',
                label VARCHAR(8192) CHARACTER SET ascii PATH '$[10]'
            )) AS c ORDER BY c.name, c.place;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    CALL holdfast_begin(wait_ms);
    OPEN asked;
    locks: LOOP
        BEGIN
            DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = TRUE;
            FETCH asked INTO ask_place, lock_name, asking, ask_ttl, ask_weight, ask_capacity, ask_kind, ask_barge, ask_claim,
                ask_host, ask_pid, ask_label;
        END;
        IF done THEN
            LEAVE locks;
        END IF;
        CALL holdfast_ask(
            lock_name, asking, ask_ttl, ask_weight, ask_capacity, ask_kind, FALSE, ask_barge, ask_claim, ask_patience,
            ask_host, ask_pid, ask_label, answer, number, present_kind, present_capacity
        );
        IF answer <> 'granted' THEN
            ROLLBACK;
            SELECT answer, number, present_kind, present_capacity, ask_place;
            LEAVE step;
        END IF;
        SET answers = CONCAT_WS(',', answers, CONCAT('[', number, ',', ask_place, ']'));
    END LOOP;
    CLOSE asked;
    COMMIT;
    SELECT 'granted', c.number, NULL, NULL, c.place
        FROM JSON_TABLE(CONCAT('[', answers, ']'), '$[*]' COLUMNS (number BIGINT PATH '$[0]', place BIGINT PATH '$[1]')) AS c;
END
$$
