-- The steps that change a lease that is held, and the one that takes several locks. As a release does, those that change a
-- lease lock its entry first, then the lock's row.

-- Changes a lease: to less weight, if that is not 0, and to another label. Hands on what it gave up. Returns false if the
-- lease has ended.
CREATE OR REPLACE FUNCTION holdfast_amend(
    wait integer, lock_name text, holding text, less_weight bigint, has_text boolean, other_text text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    ready boolean := holdfast_begin(wait);
    settled record;
    lock holdfast_lock;
    held holdfast_entry;
    lighter bigint;
    renamed boolean;
BEGIN
    SELECT * INTO held FROM holdfast_entry
        WHERE owner = holding AND name = lock_name AND place = 0 AND expires > holdfast_now() FOR UPDATE;
    IF NOT FOUND THEN
        ready := holdfast_hurry();
        RETURN false;
    END IF;
    lighter := CASE WHEN less_weight > 0 THEN least(held.weight, less_weight) ELSE held.weight END;
    renamed := has_text AND held.label <> other_text;
    IF lighter = held.weight AND NOT renamed THEN
        RETURN true;
    END IF;
    UPDATE holdfast_entry SET weight = lighter, label = CASE WHEN has_text THEN other_text ELSE label END
        WHERE owner = holding;
    SELECT * INTO lock FROM holdfast_lock WHERE name = lock_name FOR UPDATE;
    IF lighter < held.weight THEN
        lock.used := greatest(lock.used - held.weight + lighter, 0);
        SELECT * INTO settled FROM holdfast_settle(lock, '{}');
        lock := settled.lock;
    END IF;
    IF renamed AND held.kind = 'election' THEN
        lock.token := greatest(lock.token + 1, holdfast_now());
        lock.touched := holdfast_now();
        PERFORM holdfast_note(lock_name, lock.token, held.token, holding, held.host, held.pid, other_text);
    END IF;
    ready := holdfast_save(lock);
    RETURN true;
END
$$;

-- Lets a lease end after `lasting`, which may be earlier than it would have. Returns false if it has ended.
CREATE OR REPLACE FUNCTION holdfast_detach(wait integer, lock_name text, holding text, lasting bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    ready boolean := holdfast_begin(wait);
    ends bigint;
BEGIN
    UPDATE holdfast_entry SET expires = holdfast_now() + lasting, ttl = lasting
        WHERE owner = holding AND name = lock_name AND place = 0 AND expires > holdfast_now()
        RETURNING expires INTO ends;
    IF NOT FOUND THEN
        ready := holdfast_hurry();
        RETURN false;
    END IF;
    -- Not only where it is later, as seen from here: another step may just make it so.
    UPDATE holdfast_lock SET first = least(first, ends) WHERE name = lock_name;
    RETURN true;
END
$$;

-- Makes the lease of the owner `giver` that of the owner `asking`, with a new token. The answer is one of
--   granted   with the token
--   gone      the giver holds nothing
--   kind      its weight, kind or capacity is another; the last two are told
--   used, left   as of an acquire
CREATE OR REPLACE FUNCTION holdfast_adopt(
    wait integer, lock_name text, asking text, giver text, ask_ttl bigint, ask_weight bigint, ask_capacity bigint,
    ask_kind text, ask_barge boolean, ask_claim bigint, ask_patience bigint, ask_channel text,
    ask_host text, ask_pid bigint, ask_label text,
    OUT answer text, OUT number bigint, OUT present_kind text, OUT present_capacity bigint
) LANGUAGE plpgsql AS $$
DECLARE
    ready boolean := holdfast_begin(wait);
    lock holdfast_lock;
    given holdfast_entry;
    known holdfast_entry;
    now bigint;
BEGIN
    number := 0;
    SELECT * INTO given FROM holdfast_entry
        WHERE owner = giver AND name = lock_name AND place = 0 AND expires > holdfast_now() FOR UPDATE;
    -- Then, in a query of its own: a copy of this request may have been done meanwhile.
    SELECT * INTO known FROM holdfast_entry WHERE owner = asking;
    IF known.place = -1 THEN
        answer := 'left';
    ELSIF known.place IS NOT NULL AND (
        known.place > 0
        OR (known.name, known.weight, known.capacity, known.kind) <> (lock_name, ask_weight, ask_capacity, ask_kind)
    ) THEN
        answer := 'used';
    ELSIF known.place = 0 THEN
        UPDATE holdfast_entry SET expires = greatest(expires, holdfast_now() + ask_ttl)
            WHERE owner = asking AND place = 0 AND expires > holdfast_now() RETURNING 'granted', token INTO answer, number;
        answer := coalesce(answer, 'gone');
    ELSIF given.owner IS NULL THEN
        answer := 'gone';
    ELSIF (given.kind, given.capacity, given.weight) <> (ask_kind, ask_capacity, ask_weight) THEN
        answer := 'kind';
        present_kind := given.kind;
        present_capacity := given.capacity;
    END IF;
    IF answer IS NOT NULL THEN
        RETURN;
    END IF;

    SELECT * INTO lock FROM holdfast_lock WHERE name = lock_name FOR UPDATE;
    now := holdfast_now();
    number := greatest(lock.token + 1, now);
    IF ask_kind = 'semaphore' THEN
        -- The slot is the remainder, and stays.
        number := number + (given.slot - number % ask_capacity + ask_capacity) % ask_capacity;
    END IF;
    UPDATE holdfast_entry SET owner = asking, token = number, expires = now + ask_ttl, ttl = ask_ttl, barge = ask_barge,
            claim = ask_claim, patience = ask_patience, since = now, channel = ask_channel, host = ask_host, pid = ask_pid,
            label = ask_label
        WHERE owner = giver;
    -- A copy of the giver's own request may still be under way: in ten minutes it is not any more.
    PERFORM holdfast_mark(lock_name, giver, 600000000);
    UPDATE holdfast_lock SET token = number, first = least(first, now + ask_ttl), touched = now WHERE name = lock_name;
    IF ask_kind = 'election' THEN
        PERFORM holdfast_note(lock_name, number, number, asking, ask_host, ask_pid, ask_label);
    END IF;
    answer := 'granted';
END
$$;

-- Grants several locks, or changes nothing. Returns, for each, what an acquire answers, and its place in the lists; those
-- before the last were not granted if the last was not.
CREATE OR REPLACE FUNCTION holdfast_acquire_all(
    wait integer, ask_patience bigint, ask_channel text,
    lock_names text[], owners text[], ttls bigint[], weights bigint[], capacities bigint[], kinds text[], barges bigint[],
    claims bigint[], hosts text[], pids bigint[], labels text[]
) RETURNS TABLE (answer text, number bigint, present_kind text, present_capacity bigint, place bigint)
LANGUAGE plpgsql AS $$
DECLARE
    asked record;
BEGIN
    -- In the order of names: nobody then waits for a row of somebody who waits for one of ours.
    FOR asked IN
        SELECT * FROM unnest(
            lock_names, owners, ttls, weights, capacities, kinds, barges, claims, hosts, pids, labels
        ) WITH ORDINALITY AS a (name, owner, ttl, weight, capacity, kind, barge, claim, host, pid, label, n)
        ORDER BY name COLLATE "C", n
    LOOP
        SELECT got.*, asked.n INTO answer, number, present_kind, present_capacity, place FROM holdfast_acquire(
            wait, asked.name, asked.owner, asked.ttl, asked.weight, asked.capacity, asked.kind, false, asked.barge <> 0,
            asked.claim, ask_patience, ask_channel, asked.host, asked.pid, asked.label
        ) AS got;
        IF answer <> 'granted' THEN
            RAISE EXCEPTION USING ERRCODE = 'HF002';
        END IF;
        RETURN NEXT;
    END LOOP;
EXCEPTION WHEN SQLSTATE 'HF002' THEN
    RETURN NEXT;
END
$$;
