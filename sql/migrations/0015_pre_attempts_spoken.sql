-- How a peer was spoken to, in the attempt row; holds that a worker makes; and whether a sender was told that mail is late.
SET LOCAL search_path = pillarbox;

-- NULL in rows of workers that do not know these columns yet.
ALTER TABLE attempts ADD COLUMN tls text;     -- what was negotiated: "TLSv1.3 TLS_AES_256_GCM_SHA384 verified", or "none"
ALTER TABLE attempts ADD COLUMN source text;  -- the address we spoke from

-- A sender is told once that a recipient's mail is late; NULL until then.
ALTER TABLE queue ADD COLUMN noticed timestamptz;

-- Holds claimed recipients whose claim is still ours, each for its reason, and returns them by id and token. Whoever works
-- with granted rights may not move mail, so this moves it with its owner's (queue_reviewed); the token is the fence.
-- What an operator has held, deleted or bounced meanwhile stays as the operator said; only the claim ends.
CREATE FUNCTION result_hold(at timestamptz, ids bigint[], tokens bigint[], reasons text[], quarantines text[], due timestamptz[])
RETURNS TABLE (id bigint, token bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH mine AS MATERIALIZED (
        SELECT q.id, q.token, h.reason, h.quarantine, h.due
          FROM queue q JOIN unnest(ids, tokens, reasons, quarantines, due) AS h(id, token, reason, quarantine, due)
            ON h.id = q.id AND h.token = q.token
         WHERE q.id = ANY (ids)
         ORDER BY q.id FOR NO KEY UPDATE OF q
    ), moved AS (
        -- Not only the leaves of what is to be delivered: the row may be on hold already.
        UPDATE queue q
           SET status = CASE WHEN q.status = 'DELIVER' THEN 'HOLD' ELSE q.status END,
               token = NULL, worker = NULL, lease_until = NULL, lost_count = 0, next_retry = coalesce(m.due, q.next_retry),
               last_error = format('held: %s', m.reason),
               metadata = CASE WHEN q.status = 'DELIVER'
                               THEN coalesce(q.metadata, '{}')
                                    || jsonb_strip_nulls(jsonb_build_object('_quarantineid', m.quarantine, '_holdreason', m.reason))
                               ELSE q.metadata END
          FROM mine m
         WHERE q.id = ANY (ids) AND q.id = m.id
        RETURNING q.id, m.token
    )
    SELECT moved.id, moved.token FROM moved;
END $$;

-- Least privilege, as in roles.
REVOKE ALL ON FUNCTION result_hold(timestamptz, bigint[], bigint[], text[], text[], timestamptz[]) FROM PUBLIC;
DO $$
BEGIN
    IF to_regrole('pillarbox_queued') IS NOT NULL THEN
        GRANT UPDATE (noticed) ON queue TO pillarbox_queued;
        GRANT EXECUTE ON FUNCTION result_hold TO pillarbox_queued;
    END IF;
END $$;
