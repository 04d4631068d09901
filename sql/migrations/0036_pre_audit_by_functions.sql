-- What was done to the queue is recorded by functions, from what the rows really were, in the transaction that changes them:
-- an operator's `undo` does what the record says, so nobody may write it by hand.
SET LOCAL search_path = pillarbox;

-- A row of the record counts once its recipient was really changed, which audit_add finds out.
ALTER TABLE audit_rows ADD COLUMN changed boolean NOT NULL DEFAULT true;
-- Reviewers of the versions before wrote their rows themselves: nothing proves what stands in those.
ALTER TABLE audit ADD COLUMN proven boolean NOT NULL DEFAULT true;
UPDATE audit a SET proven = false
 WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = a.who
                      AND pg_has_role(r.oid, (SELECT relowner FROM pg_class WHERE oid = 'pillarbox.queue'::regclass), 'USAGE'));

-- Whether the login is an operator: whoever owns the queue.
CREATE FUNCTION is_operator() RETURNS boolean LANGUAGE sql STABLE SET search_path = pillarbox, pg_temp AS $$
    SELECT pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = 'pillarbox.queue'::regclass), 'USAGE')
$$;

-- Notes that a command of this login begins; the number of its row. Reviewers decide about what is held, and undo nothing.
CREATE FUNCTION audit_begin(operator text, verb text, condition text, argument jsonb, reason text, undoes bigint, wanted bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    made bigint;
BEGIN
    IF NOT is_operator() AND (verb NOT IN ('release', 'copy', 'redirect', 'bounce', 'delete', 'rescan', 'retention') OR undoes IS NOT NULL) THEN
        RAISE EXCEPTION '% may not %: only operators may', session_user, verb
            USING ERRCODE = 'insufficient_privilege', HINT = 'operators are members of the role that owns the queue';
    END IF;
    INSERT INTO audit AS a (who, operator, verb, condition, argument, reason, undoes, wanted)
    VALUES (session_user, audit_begin.operator, audit_begin.verb, audit_begin.condition, coalesce(audit_begin.argument, '{}'),
            audit_begin.reason, audit_begin.undoes, audit_begin.wanted)
    RETURNING a.id INTO made;
    RETURN made;
END $$;

-- The command of this login that has not come to its end; whoever else asks is refused.
CREATE FUNCTION audit_open(audit bigint) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM audit a WHERE a.id = audit_open.audit AND a.who = session_user AND a.finished IS NULL) THEN
        RAISE EXCEPTION 'audit % is not an unfinished command of %', audit_open.audit, session_user USING ERRCODE = 'insufficient_privilege';
    END IF;
END $$;

-- Locks these recipients and keeps what they are before this transaction changes them; how many.
CREATE FUNCTION audit_remember(audit bigint, ids bigint[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    kept bigint;
BEGIN
    PERFORM audit_open(audit_remember.audit);
    WITH locked AS MATERIALIZED (
        SELECT q.* FROM queue q WHERE q.id = ANY (ids) ORDER BY q.id FOR NO KEY UPDATE
    ), remembered AS (
        INSERT INTO audit_rows (audit__id, queue__id, messages__id, changed, before)
        SELECT audit_remember.audit, q.id, q.messages__id, false,
               jsonb_build_object('status', q.status, 'next_retry', q.next_retry, 'tries', q.retry_count, 'priority', q.priority,
                                  'transport', q.transportid, 'partition', q.metadata->>'_partid', 'quarantine', q.metadata->>'_quarantineid',
                                  'reason', q.metadata->>'_holdreason')
          FROM locked q RETURNING 1
    )
    SELECT count(*) INTO kept FROM remembered;
    RETURN kept;
END $$;

-- Adds a batch to the record of its command: `seen` recipients, of which those among `ids` count as done that this very
-- transaction kept and then changed; how many. A copy leaves the held recipient as it is.
CREATE FUNCTION audit_add(audit bigint, ids bigint[], seen bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    ours xid := pg_current_xact_id()::xid;
    trusted boolean := is_operator();
    copies boolean := (SELECT a.verb = 'copy' FROM audit a WHERE a.id = audit_add.audit);
    counted bigint;
BEGIN
    PERFORM audit_open(audit_add.audit);
    UPDATE audit_rows r SET changed = true
      FROM unnest(ids) AS i(id) JOIN queue q ON q.id = i.id
     WHERE r.audit__id = audit_add.audit AND r.queue__id = i.id AND NOT r.changed AND r.xmin = ours
       AND (copies OR q.xmin = ours AND (trusted OR q.status::text <> r.before->>'status'));
    GET DIAGNOSTICS counted = ROW_COUNT;
    UPDATE audit a SET done = a.done + counted, skipped = a.skipped + greatest(seen - counted, 0) WHERE a.id = audit_add.audit;
    RETURN counted;
END $$;

-- Notes that a command came to its end, and that what it undid is undone.
CREATE FUNCTION audit_finish(audit bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    PERFORM audit_open(audit_finish.audit);
    UPDATE audit a SET finished = now() WHERE a.id = audit_finish.audit;
    UPDATE audit a SET undone = now() FROM audit mine WHERE mine.id = audit_finish.audit AND a.id = mine.undoes;
END $$;

-- Whoever works with granted rights reads all that was done; row security keeps it readable where it was read before.
DROP POLICY audit_begin ON audit;
DROP POLICY audit_write ON audit;
DROP POLICY audit_rows_write ON audit_rows;
REVOKE ALL ON FUNCTION is_operator(), audit_open(bigint), audit_begin(text, text, text, jsonb, text, bigint, bigint),
    audit_remember(bigint, bigint[]), audit_add(bigint, bigint[], bigint), audit_finish(bigint) FROM PUBLIC;
DO $$
BEGIN
    IF to_regrole('pillarbox_reviewer') IS NOT NULL THEN
        REVOKE INSERT, UPDATE, DELETE ON audit, audit_rows FROM pillarbox_reviewer;
        GRANT EXECUTE ON FUNCTION audit_begin(text, text, text, jsonb, text, bigint, bigint), audit_remember(bigint, bigint[]),
            audit_add(bigint, bigint[], bigint), audit_finish(bigint) TO pillarbox_reviewer;
    END IF;
END $$;
