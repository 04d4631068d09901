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
                       ELSE jsonb_build_object('_partid', partition_id(to_domain, (SELECT s.partitions FROM settings s))) END,
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
    told       timestamptz NOT NULL,
    PRIMARY KEY (quarantine, queue__id)
);
