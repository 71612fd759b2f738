-- The steps of a lock: each is one call, in one transaction, and nobody waits for a client inside it.
--
-- A step locks the lock's row first. All that it then reads of that lock is read under that row's lock, with a
-- snapshot of its own for each query: so a step refuses to run in a transaction whose snapshot is older.
-- But the entry of a holder may be locked before the lock's row, by a renewal, which moves its end and locks no
-- other row, and by a release. So whoever has locked the lock's row waits for no holder's entry: one that is
-- locked has not ended, or its own step will see to it.

-- Returns the server's time.
CREATE OR REPLACE FUNCTION holdfast_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- Prepares a step, which waits for `wait` ms at most for the steps of others, and whose commit waits for the disk.
--
-- A plan is kept by the connection: one that was made for an empty table would read all of a large one. And to
-- compile plans takes longer than to run ours. All in one expression: each costs as much again in every transaction.
CREATE OR REPLACE FUNCTION holdfast_begin(wait integer) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed'
        AND (current_setting('synchronous_commit') <> 'off' OR set_config('synchronous_commit', 'on', true) <> '')
        AND set_config('lock_timeout', wait::text, true) <> ''
        AND set_config('enable_seqscan', 'off', true) <> ''
        AND set_config('jit', 'off', true) <> ''
    THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION 'a step of Holdfast needs the isolation level READ COMMITTED' USING ERRCODE = 'HF001';
END
$$;

-- Lets this step's commit not wait for the disk: what grants, renews or frees must last, and a place in the queue need not.
CREATE OR REPLACE FUNCTION holdfast_hurry() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN set_config('synchronous_commit', 'off', true) IS NOT NULL;
END
$$;

-- Makes a lock's row, unless somebody else did. Its tokens begin above the floor, which is read in a query of its own:
-- whoever cleaned away an earlier row of this name has raised the floor by the time that this one is there.
CREATE OR REPLACE FUNCTION holdfast_make(lock_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast_lock VALUES (lock_name, 0, 0, 0, -1, 0, 0, 0) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        UPDATE holdfast_lock SET token = (SELECT floor FROM holdfast_store WHERE id = 0) WHERE name = lock_name;
    END IF;
END
$$;

-- Returns the next token of a lock. No two holders of a semaphore have the same slot, which is the remainder of the
-- token: the next few slots are tried, then the one that was freed last, then all.
CREATE OR REPLACE FUNCTION holdfast_mint(
    lock_name text, last bigint, now bigint, of_kind text, permits bigint, freed_last bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    minted bigint := greatest(last + 1, now);
    tried bigint := minted;
BEGIN
    IF of_kind <> 'semaphore' THEN
        RETURN minted;
    END IF;
    WHILE tried < minted + least(permits, 8) LOOP
        IF NOT EXISTS (SELECT FROM holdfast_entry WHERE name = lock_name AND slot = tried % permits) THEN
            RETURN tried;
        END IF;
        tried := tried + 1;
    END LOOP;
    IF freed_last >= 0 AND NOT EXISTS (
        SELECT FROM holdfast_entry WHERE name = lock_name AND slot = freed_last % permits
    ) THEN
        RETURN minted + (freed_last - minted % permits + permits) % permits;
    END IF;
    SELECT t INTO STRICT tried FROM generate_series(minted, minted + permits - 1) t
        WHERE t % permits NOT IN (SELECT slot FROM holdfast_entry WHERE name = lock_name AND slot IS NOT NULL)
        ORDER BY t LIMIT 1;
    RETURN tried;
END
$$;

-- Does all that is due at a lock whose row is locked: ends leases that are over, passes over waiters that are gone,
-- and grants the lock to those who are next. Those in `asking` read the answer, and get their whole TTL; others are
-- handed the lock for their claim window, and woken. Returns the lock, as it is to be saved, and its first waiter, unless
-- the lock is full.
CREATE OR REPLACE FUNCTION holdfast_settle(
    INOUT lock holdfast_lock, asking text[], OUT head holdfast_entry, OUT granted boolean
) LANGUAGE plpgsql AS $$
DECLARE
    now bigint := holdfast_now();
    ends bigint;
    ended boolean := lock.used > 0 AND lock.first <= now;
BEGIN
    granted := false;
    IF ended THEN
        DELETE FROM holdfast_entry WHERE owner IN (
            SELECT owner FROM holdfast_entry
            WHERE name = lock.name AND place = 0 AND expires <= now FOR UPDATE SKIP LOCKED
        );
        SELECT coalesce(sum(weight), 0), coalesce(min(expires), 0) INTO lock.used, lock.first
            FROM holdfast_entry WHERE name = lock.name AND place = 0;
    END IF;
    WHILE lock.back > lock.front LOOP
        SELECT * INTO head FROM holdfast_entry
            WHERE name = lock.name AND place > lock.front ORDER BY place LIMIT 1;
        IF NOT FOUND THEN
            head := NULL;
            lock.front := lock.back;
            EXIT;
        END IF;
        IF head.expires <= now THEN
            DELETE FROM holdfast_entry WHERE owner = head.owner;
            lock.front := head.place;
            CONTINUE;
        END IF;
        EXIT WHEN lock.used + head.weight > head.capacity;
        IF head.barge AND NOT head.owner = ANY (asking) THEN
            -- It is woken, and has the claim window to come and take the lock. If it is frozen, it is passed over.
            IF head.channel <> '' THEN
                PERFORM pg_notify(head.channel, head.owner || ' 0');
            END IF;
            UPDATE holdfast_entry SET expires = least(expires, now + claim) WHERE owner = head.owner;
            EXIT;
        END IF;
        IF head.kind = 'semaphore' THEN
            lock.token := holdfast_mint(lock.name, lock.token, now, head.kind, head.capacity, lock.freed);
        ELSE
            lock.token := greatest(lock.token + 1, now);
        END IF;
        ends := now + CASE WHEN head.owner = ANY (asking) THEN head.ttl ELSE least(head.claim, head.ttl) END;
        UPDATE holdfast_entry SET place = 0, token = lock.token, since = now, expires = ends,
                slot = CASE WHEN kind = 'semaphore' THEN lock.token % capacity END
            WHERE owner = head.owner;
        IF NOT FOUND THEN
            -- A cleaner has removed it at this moment.
            lock.front := head.place;
            CONTINUE;
        END IF;
        lock.first := CASE WHEN lock.used = 0 THEN ends ELSE least(lock.first, ends) END;
        lock.used := lock.used + head.weight;
        lock.front := head.place;
        lock.touched := now;
        granted := true;
        IF head.kind = 'election' THEN
            PERFORM holdfast_note(lock.name, lock.token, lock.token, head.owner, head.host, head.pid, head.label);
        END IF;
        IF head.channel <> '' AND NOT head.owner = ANY (asking) THEN
            PERFORM pg_notify(head.channel, head.owner || ' ' || lock.token);
        END IF;
        IF lock.used >= head.capacity THEN
            head := NULL;
            EXIT;
        END IF;
    END LOOP;
    IF ended AND lock.used = 0 THEN
        lock := holdfast_vacate(lock);
    END IF;
END
$$;

-- Tells whether there is anything to do at a lock: a lease that may be over, or a waiter.
CREATE OR REPLACE FUNCTION holdfast_due(lock holdfast_lock, now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN lock.back > lock.front OR (lock.used > 0 AND lock.first <= now);
END
$$;

-- Writes a lock's row.
CREATE OR REPLACE FUNCTION holdfast_save(lock holdfast_lock) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast_lock SET token = lock.token, used = lock.used, first = lock.first, freed = lock.freed,
            front = lock.front, back = lock.back, touched = lock.touched
        WHERE name = lock.name;
    RETURN FOUND;
END
$$;

-- Returns for how long the present holders may hold a lock.
CREATE OR REPLACE FUNCTION holdfast_remaining(lock_name text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT greatest(0, coalesce(max(expires), 0) - holdfast_now())
            FROM holdfast_entry WHERE name = lock_name AND place = 0
    );
END
$$;

-- Grants a lock, or puts the owner into the queue, or refuses it. The answer is one of
--   granted   with the token
--   queued    with the time for which the holders may still hold it; `busy` if it was not to be put into the queue
--   kind      it is in use as another kind, or with another capacity, which are told
--   used      this owner asked for something else before
--   left      this owner gave up before its request arrived
CREATE OR REPLACE FUNCTION holdfast_acquire(
    wait integer, lock_name text, asking text, ask_ttl bigint, ask_weight bigint, ask_capacity bigint, ask_kind text,
    ask_queue boolean, ask_barge boolean, ask_claim bigint, ask_patience bigint, ask_channel text,
    ask_host text, ask_pid bigint, ask_label text,
    OUT answer text, OUT number bigint, OUT present_kind text, OUT present_capacity bigint
) LANGUAGE plpgsql AS $$
DECLARE
    ready boolean := holdfast_begin(wait);
    settled record;
    lock holdfast_lock;
    head holdfast_entry;
    known holdfast_entry;
    granted boolean := false;
    now bigint;
BEGIN
    -- Nobody holds it, nobody waits: the most frequent case, in one query. It does what all below would do.
    WITH lock AS (
        UPDATE holdfast_lock SET token = greatest(token + 1, holdfast_now()), used = ask_weight,
                first = holdfast_now() + ask_ttl, touched = holdfast_now()
            WHERE name = lock_name AND used = 0 AND front = back
                AND NOT EXISTS (SELECT FROM holdfast_entry WHERE owner = asking)
            RETURNING token, first, touched
    )
        INSERT INTO holdfast_entry SELECT
                asking, lock_name, 0, token, CASE WHEN ask_kind = 'semaphore' THEN token % ask_capacity END, first,
                ask_ttl, ask_weight, ask_capacity, ask_kind, ask_barge, ask_claim, ask_patience, touched, ask_channel,
                ask_host, ask_pid, ask_label
            FROM lock RETURNING token INTO number;
    IF FOUND THEN
        answer := 'granted';
        IF ask_kind = 'election' THEN
            PERFORM holdfast_note(lock_name, number, number, asking, ask_host, ask_pid, ask_label);
        END IF;
        RETURN;
    END IF;

    LOOP
        SELECT * INTO lock FROM holdfast_lock WHERE name = lock_name FOR UPDATE;
        EXIT WHEN FOUND;
        PERFORM holdfast_make(lock_name);
    END LOOP;
    now := holdfast_now();
    -- A lock that is full, and whose leases go on, has nothing for anybody.
    IF (lock.used < ask_capacity OR lock.first <= now) AND holdfast_due(lock, now) THEN
        SELECT * INTO settled FROM holdfast_settle(lock, '{}');
        lock := settled.lock;
        head := settled.head;
        granted := settled.granted;
    END IF;
    number := 0;
    SELECT * INTO known FROM holdfast_entry WHERE owner = asking;
    IF FOUND THEN
        -- It asks again, because the answer was lost; or it has given up since.
        IF known.place = -1 THEN
            answer := 'left';
        ELSIF (known.name, known.weight, known.capacity, known.kind)
                <> (lock_name, ask_weight, ask_capacity, ask_kind) THEN
            answer := 'used';
        ELSIF known.place = 0 THEN
            answer := 'granted';
            number := known.token;
            UPDATE holdfast_entry SET expires = greatest(expires, now + ask_ttl) WHERE owner = asking;
        ELSIF ask_queue THEN
            answer := 'queued';
            number := holdfast_remaining(lock_name);
            UPDATE holdfast_entry SET expires = now + patience, channel = ask_channel WHERE owner = asking;
        ELSE
            answer := 'busy';
            number := holdfast_remaining(lock_name);
        END IF;
    ELSE
        IF lock.used > 0 THEN
            SELECT min(kind), min(capacity), greatest(0, max(expires) - now) INTO present_kind, present_capacity, number
                FROM holdfast_entry WHERE name = lock_name AND place = 0;
        ELSE
            present_kind := head.kind;
            present_capacity := head.capacity;
        END IF;
        IF present_kind <> ask_kind OR present_capacity <> ask_capacity THEN
            answer := 'kind';
        ELSIF lock.used + ask_weight <= ask_capacity AND (head.owner IS NULL OR ask_barge) THEN
            answer := 'granted';
            number := holdfast_mint(lock_name, lock.token, now, ask_kind, ask_capacity, lock.freed);
            lock.token := number;
            lock.first := CASE WHEN lock.used = 0 THEN now + ask_ttl ELSE least(lock.first, now + ask_ttl) END;
            lock.used := lock.used + ask_weight;
            INSERT INTO holdfast_entry VALUES (
                asking, lock_name, 0, number, CASE WHEN ask_kind = 'semaphore' THEN number % ask_capacity END,
                now + ask_ttl, ask_ttl, ask_weight, ask_capacity, ask_kind, ask_barge, ask_claim, ask_patience, now,
                ask_channel, ask_host, ask_pid, ask_label
            );
            IF ask_kind = 'election' THEN
                PERFORM holdfast_note(lock_name, number, number, asking, ask_host, ask_pid, ask_label);
            END IF;
        ELSIF ask_queue THEN
            answer := 'queued';
            lock.back := lock.back + 1;
            INSERT INTO holdfast_entry VALUES (
                asking, lock_name, lock.back, 0, NULL, now + ask_patience, ask_ttl, ask_weight, ask_capacity,
                ask_kind, ask_barge, ask_claim, ask_patience, now, ask_channel, ask_host, ask_pid, ask_label
            );
        ELSE
            answer := 'busy';
        END IF;
        lock.touched := now;
    END IF;
    ready := holdfast_save(lock);
    IF NOT (granted OR answer = 'granted') THEN
        ready := holdfast_hurry();
    END IF;
END
$$;

-- Renews leases that have not ended. Returns the owners of those, and their tokens. One whose entry somebody else has
-- locked is not waited for, because the others would end meanwhile: it has no token, and is not renewed.
CREATE OR REPLACE FUNCTION holdfast_renew(wait integer, lock_names text[], owners text[], ttls bigint[])
RETURNS TABLE (renewed text, its_token bigint) LANGUAGE plpgsql AS $$
DECLARE
    ready boolean := holdfast_begin(wait);
BEGIN
    FOR number IN 1 .. array_length(owners, 1) LOOP
        PERFORM FROM holdfast_entry WHERE owner = owners[number] FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE holdfast_entry SET expires = greatest(expires, holdfast_now() + ttls[number])
                WHERE owner = owners[number] AND name = lock_names[number] AND place = 0 AND expires > holdfast_now()
                RETURNING owner, token INTO renewed, its_token;
        ELSE
            SELECT owner, -1 INTO renewed, its_token FROM holdfast_entry
                WHERE owner = owners[number] AND name = lock_names[number] AND place = 0 AND expires > holdfast_now();
        END IF;
        IF FOUND THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;

-- Keeps places in queues, whose owners are woken on `wake_on`, and does what is due at those locks. Returns, for each
-- owner that holds or waits, its token (0: it waits; -1: it holds, and could not be renewed) and the time for which the
-- holders may still hold the lock.
CREATE OR REPLACE FUNCTION holdfast_beat(wait integer, lock_names text[], owners text[], wake_on text)
RETURNS TABLE (heard text, its_token bigint, remaining bigint) LANGUAGE plpgsql AS $$
DECLARE
    ready boolean := holdfast_begin(wait);
    lasting boolean := false;
    lock_name text;
    asking text[];
    settled record;
    lock holdfast_lock;
    waiter holdfast_entry;
    now bigint;
BEGIN
    -- In the order of names: nobody then waits for a row of somebody who waits for one of ours.
    FOR lock_name, asking IN
        SELECT n, array_agg(o) FROM unnest(lock_names, owners) AS claimed (n, o) GROUP BY n ORDER BY n COLLATE "C"
    LOOP
        SELECT * INTO lock FROM holdfast_lock WHERE name = lock_name FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        now := holdfast_now();
        -- Not with every heartbeat: there may be thousands of waiters.
        UPDATE holdfast_entry SET expires = now + patience, channel = wake_on
            WHERE owner = ANY (asking) AND name = lock_name AND place > 0 AND expires > now
                AND (expires < now + patience * 7 / 10 OR channel <> wake_on);
        SELECT * INTO settled FROM holdfast_settle(lock, asking);
        lock := settled.lock;
        lasting := lasting OR settled.granted;
        -- Those who may overtake: the first in the queue was only woken.
        FOR waiter IN
            SELECT * FROM holdfast_entry
            WHERE owner = ANY (asking) AND name = lock_name AND place > 0 AND barge AND expires > now ORDER BY place
        LOOP
            CONTINUE WHEN lock.used + waiter.weight > waiter.capacity;
            lock.token := holdfast_mint(
                lock_name, lock.token, now, waiter.kind, waiter.capacity, lock.freed
            );
            UPDATE holdfast_entry SET place = 0, token = lock.token, since = now, expires = now + ttl,
                    slot = CASE WHEN kind = 'semaphore' THEN lock.token % capacity END
                WHERE owner = waiter.owner;
            lock.first := CASE WHEN lock.used = 0 THEN now + waiter.ttl ELSE least(lock.first, now + waiter.ttl) END;
            lock.used := lock.used + waiter.weight;
            lock.touched := now;
            lasting := true;
            IF waiter.kind = 'election' THEN
                PERFORM holdfast_note(
                    lock_name, lock.token, lock.token, waiter.owner, waiter.host, waiter.pid, waiter.label
                );
            END IF;
        END LOOP;
        ready := holdfast_save(lock);
        -- One that was handed the lock before is told, and has its whole TTL from now: unless somebody else has locked
        -- its entry.
        UPDATE holdfast_entry SET expires = greatest(expires, now + ttl) WHERE owner IN (
            SELECT owner FROM holdfast_entry
            WHERE owner = ANY (asking) AND name = lock_name AND place = 0 AND expires > now FOR UPDATE SKIP LOCKED
        );
        lasting := lasting OR FOUND;
        remaining := holdfast_remaining(lock_name);
        FOR heard, its_token IN
            SELECT owner, CASE WHEN place = 0 AND expires < now + ttl THEN -1 ELSE token END FROM holdfast_entry
            WHERE owner = ANY (asking) AND name = lock_name AND place >= 0 AND expires > now
        LOOP
            RETURN NEXT;
        END LOOP;
    END LOOP;
    IF NOT lasting THEN
        ready := holdfast_hurry();
    END IF;
END
$$;

-- Keeps an owner in mind, so that a request of it that is still under way is refused. Returns whether it had no entry.
CREATE OR REPLACE FUNCTION holdfast_mark(lock_name text, leaving text, remember bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast_entry VALUES (
        leaving, lock_name, -1, 0, NULL, holdfast_now() + remember, 0, 0, 0, '', false, 0, 0, holdfast_now(),
        '', '', 0, ''
    ) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$$;

-- Frees a lease, or leaves the queue, and hands on. Returns whether a lease was freed that had not ended. An owner whose
-- request, or a copy of it, may still be under way is kept in mind for `remember`: that request is refused.
CREATE OR REPLACE FUNCTION holdfast_release(wait integer, lock_name text, leaving text, remember bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    ready boolean := holdfast_begin(wait);
    lock holdfast_lock;
    gone record;
    settled record;
    granted boolean := false;
BEGIN
    -- The most frequent case in one query: it holds the lock. Most often nobody waits.
    WITH freed AS (
        DELETE FROM holdfast_entry WHERE owner = leaving AND name = lock_name AND place = 0
            RETURNING place, weight, expires, slot, kind
    ), saved AS (
        UPDATE holdfast_lock SET used = used - weight, freed = coalesce(slot, -1)
            FROM freed WHERE name = lock_name AND used >= weight
            RETURNING back > front AS awaited, holdfast_lock AS row
    )
        SELECT freed.*, saved.awaited, saved.row INTO gone FROM freed LEFT JOIN saved ON true;
    IF gone.awaited IS NOT NULL THEN
        ready := remember = 0 OR holdfast_mark(lock_name, leaving, remember);
        IF gone.awaited OR gone.kind = 'election' THEN
            SELECT * INTO settled FROM holdfast_settle(gone.row, '{}');
            lock := settled.lock;
            IF gone.kind = 'election' AND lock.used = 0 THEN
                lock := holdfast_vacate(lock);
            END IF;
            ready := holdfast_save(lock);
        END IF;
        RETURN gone.expires > holdfast_now();
    END IF;

    LOOP
        SELECT * INTO lock FROM holdfast_lock WHERE name = lock_name FOR UPDATE;
        EXIT WHEN gone.place = 0;
        IF FOUND THEN
            DELETE FROM holdfast_entry WHERE owner = leaving AND name = lock_name AND place >= 0
                RETURNING place, weight, expires, slot, kind INTO gone;
            EXIT WHEN FOUND;
        END IF;
        IF remember = 0 THEN
            ready := holdfast_hurry();
            RETURN false;
        END IF;
        IF holdfast_mark(lock_name, leaving, remember) OR EXISTS (SELECT FROM holdfast_entry WHERE owner = leaving AND (place = -1 OR name <> lock_name)) THEN
            RETURN false;
        END IF;
        -- Its request arrived at this moment.
    END LOOP;
    ready := remember = 0 OR holdfast_mark(lock_name, leaving, remember);
    IF gone.place = 0 THEN
        lock.used := greatest(lock.used - gone.weight, 0);
        lock.freed := coalesce(gone.slot, -1);
    END IF;
    IF holdfast_due(lock, holdfast_now()) THEN
        SELECT * INTO settled FROM holdfast_settle(lock, '{}');
        lock := settled.lock;
        granted := settled.granted;
    END IF;
    IF gone.kind = 'election' AND gone.place = 0 AND lock.used = 0 THEN
        lock := holdfast_vacate(lock);
    END IF;
    ready := holdfast_save(lock);
    IF NOT (granted OR gone.place = 0) THEN
        ready := holdfast_hurry();
    END IF;
    RETURN gone.place = 0 AND gone.expires > holdfast_now();
END
$$;

-- Ends every lease on a lock, raises its token, and hands on. Returns whether anybody held it. The holders are told, by a
-- message with the token -1.
CREATE OR REPLACE FUNCTION holdfast_break(wait integer, lock_name text, breaking text, above bigint)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    ready boolean := holdfast_begin(wait);
    lock holdfast_lock;
    settled record;
    broken text;
    told bigint;
    now bigint;
BEGIN
    WITH ended AS (
        DELETE FROM holdfast_entry WHERE name = lock_name AND place = 0 RETURNING owner, token, expires, channel
    )
        SELECT string_agg(format('%s (token %s)', owner, token), ', '),
                count(CASE WHEN channel <> '' THEN pg_notify(channel, owner || ' -1') END)
            INTO broken, told
            FROM ended WHERE expires > holdfast_now();
    LOOP
        SELECT * INTO lock FROM holdfast_lock WHERE name = lock_name FOR UPDATE;
        EXIT WHEN FOUND;
        PERFORM holdfast_make(lock_name);
    END LOOP;
    now := holdfast_now();
    -- Somebody may have been granted the lock since.
    SELECT coalesce(sum(weight), 0), coalesce(min(expires), 0) INTO lock.used, lock.first
        FROM holdfast_entry WHERE name = lock_name AND place = 0;
    lock.token := greatest(lock.token + 1, now, above);
    lock.touched := now;
    SELECT * INTO settled FROM holdfast_settle(lock, '{}');
    lock := settled.lock;
    IF lock.used = 0 THEN
        lock := holdfast_vacate(lock);
    END IF;
    ready := holdfast_save(lock);
    INSERT INTO holdfast_audit (name, actor, holders) VALUES (lock_name, breaking, coalesce(broken, ''));
    RETURN broken IS NOT NULL;
END
$$;

-- Looks after waiters: returns the tokens of those of these owners that hold their lock, and 0 for one that is the first
-- in its queue, and may come and take the lock, because it is free, or observes an election that has changed.
CREATE OR REPLACE FUNCTION holdfast_look(owners text[]) RETURNS TABLE (granted text, its_token bigint) LANGUAGE sql AS $$
    SELECT owner, token FROM holdfast_entry WHERE owner = ANY (owners) AND place = 0 AND expires > holdfast_now()
    UNION ALL SELECT entry.owner, 0 FROM holdfast_entry AS entry JOIN holdfast_lock AS lock USING (name)
        WHERE entry.owner = ANY (owners) AND entry.place > 0 AND entry.barge AND used + weight <= capacity
            AND NOT EXISTS (
                SELECT FROM holdfast_entry AS other
                WHERE other.name = entry.name AND other.place > front AND other.place < entry.place
            )
    UNION ALL SELECT owner, 0 FROM holdfast_observer AS observer
        WHERE owner = ANY (owners) AND expires > holdfast_now() AND EXISTS (
            SELECT FROM holdfast_change AS change WHERE change.name = observer.name AND number > seen
        )
$$;

-- Sends a message.
CREATE OR REPLACE FUNCTION holdfast_wake(channel text, message text) RETURNS void LANGUAGE sql AS $$
    SELECT pg_notify(channel, message)
$$;

-- Returns the holders and waiters of the locks from `first_name` up to `last_name`, without it; and of each lock its token.
CREATE OR REPLACE FUNCTION holdfast_list(first_name text, last_name text)
RETURNS TABLE (
    lock_name text, last_token bigint, its_owner text, its_place bigint, its_token bigint, left_time bigint,
    its_weight bigint, its_capacity bigint, its_kind text, its_since bigint, its_host text, its_pid bigint, its_label text,
    its_ttl bigint
) LANGUAGE sql AS $$
    SELECT entry.name, lock.token, entry.owner, entry.place, entry.token, expires - moment.now, weight, capacity, kind,
            since, host, pid, label, ttl
        FROM holdfast_entry AS entry JOIN holdfast_lock AS lock USING (name), (SELECT holdfast_now() AS now) AS moment
        WHERE entry.name >= first_name COLLATE "C" AND entry.name < last_name COLLATE "C"
            AND place >= 0 AND expires > moment.now
        ORDER BY entry.name, place, entry.token
$$;

-- Returns the last token of a lock; of one that has no row, a token that none of its grants exceeded.
CREATE OR REPLACE FUNCTION holdfast_token(lock_name text) RETURNS bigint LANGUAGE sql AS $$
    SELECT coalesce((SELECT token FROM holdfast_lock WHERE name = lock_name), (SELECT floor FROM holdfast_store WHERE id = 0))
$$;

-- Cleans: goes on from where the last cleaner stopped, through `most` locks, and removes those that nobody has used for
-- `unused`, with the changes of elections among them; and observers whose time is over. The tokens of those locks stay below
-- the floor, from which a new row of the same name begins. One cleaner at a time; nobody waits for it, and it waits for nobody. Returns the number of locks that it removed.
CREATE OR REPLACE FUNCTION holdfast_clean(wait integer, most integer, unused bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    ready boolean := holdfast_begin(wait);
    now bigint := holdfast_now();
    start text;
    stop text;
    highest bigint;
    removed bigint;
BEGIN
    SELECT cleaned INTO start FROM holdfast_store WHERE id = 0 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    DELETE FROM holdfast_entry WHERE owner IN (
        SELECT owner FROM holdfast_entry WHERE place = -1 AND expires <= now LIMIT most FOR UPDATE SKIP LOCKED
    );
    SELECT max(name) INTO stop FROM (
        SELECT name FROM holdfast_lock WHERE name > start ORDER BY name LIMIT most
    ) AS next;
    DELETE FROM holdfast_entry WHERE owner IN (
        SELECT owner FROM holdfast_entry
        WHERE name > start AND name <= stop AND place >= 0 AND expires <= now FOR UPDATE SKIP LOCKED
    );
    WITH stale AS (
        SELECT name FROM holdfast_lock AS lock
        WHERE name > start AND name <= stop AND touched < now - unused AND token < now
            AND NOT EXISTS (SELECT FROM holdfast_entry AS entry WHERE entry.name = lock.name AND place >= 0)
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM holdfast_lock WHERE name IN (SELECT name FROM stale) RETURNING name, token
    ), forgotten AS (
        DELETE FROM holdfast_change WHERE name IN (SELECT name FROM gone)
    )
    SELECT max(token), count(*) INTO highest, removed FROM gone;
    DELETE FROM holdfast_observer WHERE owner IN (
        SELECT owner FROM holdfast_observer WHERE expires <= now ORDER BY expires LIMIT most FOR UPDATE SKIP LOCKED
    );
    UPDATE holdfast_store SET cleaned = coalesce(stop, ''), floor = greatest(floor, coalesce(highest, 0)) WHERE id = 0;
    IF removed = 0 THEN
        ready := holdfast_hurry();
    END IF;
    RETURN removed;
END
$$;
