-- Locks that only our roles can take. Advisory locks are open to every login that may connect to the database, and their
-- keys are public: a stranger's session could keep maintenance, migrations, repartitioning and notices waiting for ever.
-- See "Lock order" in ../README.md.
SET LOCAL search_path = pillarbox;

-- One row for each task that one process may do at a time. For the length of a transaction its row is locked
-- (`lock_try`); a task of several transactions has a lease (`holder`, `until`), so that no transaction stays open for it,
-- that it works behind a pooler, and that a holder that died keeps it no longer than its lease.
CREATE TABLE locks (
    name   text PRIMARY KEY,
    holder text,
    until  timestamptz
) WITH (fillfactor = 50);
-- The row `clock` is not a lock: its `until` is the latest time that was read from the server's clock, its
-- `holder` how far it is with mail that has times from before the clock was put back (maintain_clock).
INSERT INTO locks (name) VALUES ('clock'), ('history_create'), ('maintain'), ('notices'), ('reports'), ('webhooks');

-- A repartitioning locks this table for as long as it takes, in a transaction of a second connection that does nothing
-- else: it has neither a snapshot nor a number, so it does not hold back vacuum, and ends with its process.
CREATE TABLE repartition_lock ();

-- Whether this transaction has the lock now; it has it until it ends.
CREATE FUNCTION lock_try(wanted text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    PERFORM FROM locks WHERE name = wanted FOR UPDATE SKIP LOCKED;
    RETURN FOUND;
END $$;

-- Takes or renews a lease; whether `who` holds it from now on. By the server's clock alone; a lease that ends later
-- than any that is ever given was given before the clock was put back.
CREATE FUNCTION lease_take(wanted text, who text, span interval) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF span IS NULL OR span > interval '10 minutes' THEN
        RAISE EXCEPTION 'a lease lasts 10 minutes at most, not %', span USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE locks l SET holder = who, until = clock_timestamp() + span
     WHERE l.name = (SELECT f.name FROM locks f
                      WHERE f.name = wanted
                        AND (f.holder IS NULL OR f.holder = who OR f.until <= clock_timestamp() OR f.until > clock_timestamp() + interval '10 minutes')
                        FOR UPDATE SKIP LOCKED);
    RETURN FOUND;
END $$;

-- Ends a lease before its time, if `who` holds it.
CREATE FUNCTION lease_give(wanted text, who text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    UPDATE locks SET holder = NULL, until = NULL WHERE name = wanted AND holder = who
$$;
