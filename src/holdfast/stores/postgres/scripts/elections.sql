-- The changes of elections, which are locks of the kind `election`, and who observes them. Changes are noted by the steps
-- that grant, amend or end a lease, under the lock's row; their numbers are tokens of that lock.

-- Notes a change, keeps the last 32, and wakes those who observe the election.
CREATE OR REPLACE FUNCTION holdfast_note(
    lock_name text, its_number bigint, its_token bigint, its_owner text, its_host text, its_pid bigint, its_label text
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast_change
        VALUES (lock_name, its_number, its_token, its_owner, its_host, its_pid, its_label, holdfast_now());
    DELETE FROM holdfast_change WHERE name = lock_name AND number <= (
        SELECT number FROM holdfast_change WHERE name = lock_name ORDER BY number DESC OFFSET 32 LIMIT 1
    );
    PERFORM pg_notify(channel, owner || ' 0') FROM holdfast_observer
        WHERE name = lock_name AND channel <> '' AND expires > holdfast_now();
END
$$;

-- Notes that nobody leads any more, if somebody did. Returns the lock, as it is to be saved.
CREATE OR REPLACE FUNCTION holdfast_vacate(INOUT lock holdfast_lock) LANGUAGE plpgsql AS $$
DECLARE
    last holdfast_change;
BEGIN
    SELECT * INTO last FROM holdfast_change WHERE name = lock.name ORDER BY number DESC LIMIT 1;
    IF last.owner <> '' THEN
        lock.token := greatest(lock.token + 1, holdfast_now());
        lock.touched := holdfast_now();
        PERFORM holdfast_note(lock.name, lock.token, last.token, '', '', 0, '');
    END IF;
END
$$;

-- Does what is due at an election. Has the owner woken on `wake_on` at the next change, for `lasting`. Returns a row with the
-- number 0 and the time that the leader has, and the changes with a number above `after`; of 0, the latest alone.
CREATE OR REPLACE FUNCTION holdfast_observe(
    wait integer, lock_name text, asking text, after bigint, lasting bigint, wake_on text
) RETURNS TABLE (
    its_number bigint, its_token bigint, its_owner text, its_host text, its_pid bigint, its_label text, its_time bigint
) LANGUAGE plpgsql AS $$
DECLARE
    ready boolean := holdfast_begin(wait);
    settled record;
    lock holdfast_lock;
    before bigint;
    latest bigint;
    now bigint;
BEGIN
    LOOP
        SELECT * INTO lock FROM holdfast_lock WHERE name = lock_name FOR UPDATE;
        EXIT WHEN FOUND;
        PERFORM holdfast_make(lock_name);
    END LOOP;
    now := holdfast_now();
    before := lock.token;
    IF holdfast_due(lock, now) THEN
        SELECT * INTO settled FROM holdfast_settle(lock, '{}');
        lock := settled.lock;
        ready := holdfast_save(lock);
    ELSIF lock.touched = 0 THEN
        lock.touched := now;
        ready := holdfast_save(lock);
    END IF;
    SELECT coalesce(max(number), 0) INTO latest FROM holdfast_change WHERE name = lock_name;
    INSERT INTO holdfast_observer VALUES (asking, lock_name, latest, now + lasting, wake_on)
        ON CONFLICT (owner) DO UPDATE SET name = lock_name, seen = latest, expires = now + lasting, channel = wake_on;
    IF lock.token = before THEN
        ready := holdfast_hurry();
    END IF;
    RETURN QUERY SELECT 0::bigint, 0::bigint, '', '', 0::bigint, '', holdfast_remaining(lock_name);
    RETURN QUERY SELECT number, token, owner, host, pid, label, at FROM holdfast_change
        WHERE name = lock_name AND number > CASE WHEN after = 0 THEN latest - 1 ELSE after END ORDER BY number;
END
$$;

-- Forgets an observer.
CREATE OR REPLACE FUNCTION holdfast_unobserve(leaving text) RETURNS void LANGUAGE sql AS $$
    DELETE FROM holdfast_observer WHERE owner = leaving
$$;
