-- Acts of reviewers on held mail beyond releasing and deleting it, and their digests.
SET LOCAL search_path = pillarbox;

-- Releases copies of held recipients and leaves the held ones where they are: new rows, in a transaction like any
-- other. With the rights of its owner, and only for held mail, so that reviewers may, where the quarantine is theirs.
CREATE FUNCTION queue_release_copies(ids bigint[], to_localpart text, to_domain text)
RETURNS TABLE (id bigint, partid text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF (to_localpart IS NULL) <> (to_domain IS NULL) THEN
        RAISE EXCEPTION 'a copy is for a whole address, or for the recipient itself' USING ERRCODE = 'invalid_parameter_value';
    ELSIF to_domain IS NOT NULL THEN
        SELECT a.localpart, a.domain INTO to_localpart, to_domain FROM address_split(to_localpart || '@' || to_domain) AS a;
    END IF;
    RETURN QUERY
    INSERT INTO queue (messages__id, actionid, ts, senderip, serverid, senderhelo, saslusername, senderlocalpart, senderdomain,
                       recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority)
    SELECT q.messages__id, q.actionid, now(), q.senderip, q.serverid, q.senderhelo, q.saslusername, q.senderlocalpart, q.senderdomain,
           coalesce(to_localpart, q.recipientlocalpart), coalesce(to_domain, q.recipientdomain), q.size,
           q.metadata - ARRAY['_quarantineid', '_heldat'] || jsonb_build_object('_copyof', q.id::text)
               || CASE WHEN to_domain IS NULL THEN '{}'
                       -- The sender asked about another address, and is not to learn of this one.
                       ELSE jsonb_build_object('_partid', partition_id(to_domain, (SELECT s.partitions FROM settings s)),
                                               '_dsn', '{"notify": ["NEVER"]}'::jsonb) END,
           q.transportid, q.jobid, q.priority
      FROM queue q
     WHERE q.id = ANY (ids) AND q.status = 'HOLD' AND review_checked(q.metadata->>'_quarantineid')
     ORDER BY q.id
    RETURNING queue.id, queue.metadata->>'_partid';
END $$;

-- Releases held recipients to other addresses: a copy to each, and the held one is deleted, in one step, so that a command
-- that is cut off and repeated sends nothing twice. With the rights of the caller.
CREATE FUNCTION queue_redirect(ids bigint[], localparts text[], domains text[]) RETURNS TABLE (id bigint, partid text)
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
DECLARE
    partids text[] := '{}';
BEGIN
    FOR n IN 1 .. cardinality(domains) LOOP
        partids := partids || (SELECT array_agg(DISTINCT c.partid) FROM queue_release_copies(ids, localparts[n], domains[n]) AS c);
    END LOOP;
    PERFORM notify_partition(coalesce(p, '')) FROM unnest(partids) AS p;
    RETURN QUERY
    UPDATE queue q SET status = 'DELETE' WHERE q.id = ANY (ids) AND q.status = 'HOLD' RETURNING q.id, partids[1];
END $$;

-- Brings back those of these recipients that a command deleted, as long as their bodies are kept: as new rows, each once,
-- however many ask at the same time. The deleted row stays, or its row in the archive: it happened. For a command that is
-- under way and undoes that one, to whose record the new rows are added.
CREATE FUNCTION queue_restore_deleted(audit bigint, ids bigint[]) RETURNS TABLE (id bigint, partid text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
DECLARE
    trusted boolean := is_operator();
    undone bigint := (SELECT u.undoes FROM audit u JOIN audit d ON d.id = u.undoes
                       WHERE u.id = queue_restore_deleted.audit AND u.verb = 'undo' AND d.verb = 'delete');
BEGIN
    PERFORM audit_open(queue_restore_deleted.audit);
    IF undone IS NULL THEN
        RAISE EXCEPTION 'audit % does not undo a deletion', queue_restore_deleted.audit USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- The next statement sees what those who held these bodies before us have done.
    PERFORM FROM messages m
      WHERE m.id IN (SELECT r.messages__id FROM audit_rows r WHERE r.audit__id = undone AND r.queue__id = ANY (ids))
      ORDER BY m.id FOR NO KEY UPDATE;
    RETURN QUERY
    WITH deleted AS MATERIALIZED (
        SELECT r.queue__id, r.messages__id, r.before FROM audit_rows r
         WHERE r.audit__id = undone AND r.queue__id = ANY (ids) AND r.changed
           AND (trusted OR r.before->>'status' = 'HOLD' AND may_review(r.before->>'quarantine'))
           AND EXISTS (SELECT FROM messages m WHERE m.id = r.messages__id)
           AND NOT EXISTS (SELECT FROM queue q WHERE q.messages__id = r.messages__id AND q.metadata->>'_requeued' = r.queue__id::text)
           AND NOT EXISTS (SELECT FROM archive a WHERE a.messages__id = r.messages__id AND a.metadata->>'_requeued' = r.queue__id::text)
    ), gone AS (
        SELECT q.id, q.messages__id, q.actionid, q.ts, q.senderip, q.serverid, q.senderhelo, q.saslusername, q.senderlocalpart, q.senderdomain,
               q.recipientlocalpart, q.recipientdomain, q.size, q.metadata, q.transportid, q.jobid, q.priority, q.retry_count, q.last_error
          FROM deleted d JOIN queue q ON q.id = d.queue__id AND q.messages__id = d.messages__id AND q.status = 'DELETE'
        UNION ALL
        SELECT a.id, a.messages__id, a.actionid, a.ts, a.senderip, a.serverid, NULL, a.saslusername, a.senderlocalpart, a.senderdomain,
               a.recipientlocalpart, a.recipientdomain, a.size, a.metadata, a.transportid, a.jobid, a.priority, a.retry_count, a.last_error
          FROM deleted d JOIN archive a ON a.id = d.queue__id AND a.messages__id = d.messages__id AND a.result IN ('deleted', 'lock_expired')
    ), again AS (
        INSERT INTO queue AS made (messages__id, actionid, status, ts, senderip, serverid, senderhelo, saslusername, senderlocalpart, senderdomain,
                           recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority, retry_count, next_retry, last_error)
        SELECT g.messages__id, g.actionid, (d.before->>'status')::queue_status, g.ts, g.senderip, g.serverid, g.senderhelo, g.saslusername,
               g.senderlocalpart, g.senderdomain, g.recipientlocalpart, g.recipientdomain, g.size,
               coalesce(g.metadata, '{}') || jsonb_build_object('_requeued', g.id::text), g.transportid, g.jobid, g.priority, g.retry_count,
               greatest((d.before->>'next_retry')::timestamptz, now()), g.last_error
          FROM gone g JOIN deleted d ON d.queue__id = g.id
         ORDER BY g.id
        RETURNING made.id, made.messages__id, made.status, made.metadata
    ), noted AS (
        INSERT INTO audit_rows (audit__id, queue__id, messages__id, changed, before)
        SELECT queue_restore_deleted.audit, n.id, n.messages__id, true, jsonb_build_object('deleted', n.metadata->'_requeued') FROM again n
        RETURNING 1
    ), counted AS (
        UPDATE audit u SET done = u.done + (SELECT count(*) FROM noted) WHERE u.id = queue_restore_deleted.audit RETURNING 1
    )
    SELECT n.id, n.metadata->>'_partid' FROM again n CROSS JOIN counted;
END $$;

-- When the reviewers of a quarantine last got a digest, and its message.
CREATE TABLE digests (
    quarantine   text        PRIMARY KEY,
    sent         timestamptz,
    messages__id uuid
);

-- The held recipients of past digests; a row goes when its recipient is held there no more.
CREATE TABLE digest_rows (
    quarantine text        NOT NULL REFERENCES digests ON DELETE CASCADE,
    queue__id  bigint      NOT NULL,
    reported   timestamptz NOT NULL,
    PRIMARY KEY (quarantine, queue__id)
);

-- Senders, and whole domains, whose mail policy refuses where smtpd.yaml asks for them (`sender_blocked`).
CREATE TABLE blocked_senders (
    target  text        PRIMARY KEY CHECK (target = lowered(target) AND target <> '' AND target !~ '[\x01-\x20\x7f]'),
    reason  text        NOT NULL,
    who     text        NOT NULL DEFAULT acting_for(),
    since   timestamptz NOT NULL DEFAULT now(),
    expires timestamptz                                -- NULL: never
);
SELECT settings_keep('blocked_senders', 'target');

-- Whether this sender, or its domain, is blocked; for a list of policy.
CREATE FUNCTION sender_blocked(sender text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT EXISTS (SELECT FROM blocked_senders b
                    WHERE b.target IN (lowered(sender), lowered(substring(sender from '@([^@]*)$'))) AND (b.expires IS NULL OR b.expires > now()))
$$;

-- Blocks the sender of a held recipient for so long (NULL: for ever), or its whole domain, which is for operators; what is
-- blocked. What is blocked already stays as it is. No row: there is no such held recipient. NULL: it has the null sender.
CREATE FUNCTION sender_block(recipient bigint, whole boolean, reason text, keep interval) RETURNS TABLE (target text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
DECLARE
    command text := coalesce(current_setting('pillarbox.command', true), '');
BEGIN
    IF whole AND NOT is_operator() THEN
        RAISE EXCEPTION '% may not block a whole domain: only operators may', to_json(acting_for()) USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM set_config('pillarbox.command', '', true);  -- that an old block has ended is no change by this command
    DELETE FROM blocked_senders b WHERE b.expires <= now();
    PERFORM set_config('pillarbox.command', command, true);
    RETURN QUERY
    WITH named AS (
        SELECT lowered(CASE WHEN whole THEN q.senderdomain::text ELSE q.senderlocalpart || '@' || q.senderdomain END) AS target
          FROM queue q WHERE q.id = recipient AND q.status = 'HOLD' AND review_checked(q.metadata->>'_quarantineid')
    ), added AS (
        INSERT INTO blocked_senders AS b (target, reason, expires)
        SELECT n.target, sender_block.reason, now() + keep FROM named n WHERE n.target IS NOT NULL
            ON CONFLICT DO NOTHING
    )
    SELECT n.target FROM named n;
END $$;

-- Ends a block: one's own, or as an operator any. No row: there is none.
CREATE FUNCTION sender_unblock(asked text) RETURNS TABLE (target text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF NOT is_operator() AND EXISTS (SELECT FROM blocked_senders b WHERE b.target = asked AND b.who <> acting_for()) THEN
        RAISE EXCEPTION '% may not end a block of somebody else: only operators may', to_json(acting_for()) USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN QUERY DELETE FROM blocked_senders b WHERE b.target = asked RETURNING b.target;
END $$;

-- Changes blocks back where they are as a command left them, for the open command that undoes it. Whole domains are for operators.
CREATE FUNCTION sender_block_undo() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    command bigint := current_setting('pillarbox.command')::bigint;
    undone bigint := (SELECT a.undoes FROM audit a WHERE a.id = command AND audit_changes(a.verb, a.undoes) = regclass 'blocked_senders');
    trusted boolean := is_operator();
BEGIN
    PERFORM audit_open(command);
    DELETE FROM blocked_senders t USING audit_settings s
     WHERE s.audit__id = undone AND s.before IS NULL AND t.target = s.key AND t = jsonb_populate_record(t, s.after)
       AND (trusted OR t.who = acting_for());
    INSERT INTO blocked_senders (target, reason, who, since, expires)
    SELECT r.target, r.reason, r.who, r.since, r.expires
      FROM audit_settings s, jsonb_populate_record(NULL::blocked_senders, s.before) AS r
     WHERE s.audit__id = undone AND s.after IS NULL AND (trusted OR r.who = acting_for() AND r.target LIKE '%@%')
    ON CONFLICT DO NOTHING;
END $$;
