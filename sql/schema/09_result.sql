-- Results that hold mail, which a worker may not do with its granted rights; each is fenced by id, message and token.
--
-- The fence names the message too: a standby that lagged when it was promoted gives ids and tokens again that were
-- given before; the message's UUID is never given again.
--
-- They look in the leaves of `partids` alone (a NULL among them is mail without a partition), and not at mail on hold;
-- `partids` NULL is the whole queue. They are planned for the given ids, each time: PostgreSQL locks every leaf
-- that a plan names, with its indexes, and a kept plan would have to name all.
SET LOCAL search_path = pillarbox;

-- Holds claimed recipients whose claim is still ours, each for its reason, and returns them by id and token. A role with
-- granted rights may not move mail, so this moves it with its owner's (queue_reviewed); the token is the fence. Mail that
-- an operator has held, deleted or bounced meanwhile stays so; only the claim ends.
CREATE FUNCTION result_hold(at timestamptz, ids bigint[], messages uuid[], tokens bigint[], partids text[],
                            reasons text[], quarantines text[], due timestamptz[])
RETURNS TABLE (id bigint, token bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH mine AS MATERIALIZED (
        SELECT q.id, q.token, h.reason, h.quarantine, h.due
          FROM queue q JOIN unnest(ids, result_hold.messages, tokens, reasons, quarantines, result_hold.due)
                            AS h(id, message, token, reason, quarantine, due)
            ON h.id = q.id AND h.message = q.messages__id AND h.token = q.token
         WHERE q.id = ANY (ids)
           AND (partids IS NULL OR q.status <> 'HOLD' AND (q.metadata->>'_partid' = ANY (partids)
                OR array_position(partids, NULL) IS NOT NULL AND q.metadata->>'_partid' IS NULL))
         ORDER BY q.id FOR NO KEY UPDATE OF q
    ), moved AS (
        -- With `partids` NULL not only the leaves of what is to be delivered: the row may be on hold already.
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
           AND (partids IS NULL OR q.status <> 'HOLD' AND (q.metadata->>'_partid' = ANY (partids)
                OR array_position(partids, NULL) IS NOT NULL AND q.metadata->>'_partid' IS NULL))
        RETURNING q.id, m.token
    )
    SELECT moved.id, moved.token FROM moved;
END $$;

-- Holds claimed recipients that have no body, with the reason, and returns them by id and token: no further try could
-- send them. This function checks itself that the body is missing, whatever the caller says. Each gets the attempt row of
-- its claim.
CREATE FUNCTION hold_missing_body(at timestamptz, ids bigint[], messages uuid[], tokens bigint[], partids text[])
RETURNS TABLE (id bigint, token bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    held bigint[];
    fences bigint[];
    named text;
BEGIN
    WITH bodiless AS MATERIALIZED (
        SELECT q.id, q.token
          FROM queue q JOIN unnest(ids, hold_missing_body.messages, tokens) AS h(id, message, token)
            ON h.id = q.id AND h.message = q.messages__id AND h.token = q.token
         WHERE q.id = ANY (ids) AND q.status = 'DELIVER'
           AND (partids IS NULL OR q.metadata->>'_partid' = ANY (partids)
                OR array_position(partids, NULL) IS NOT NULL AND q.metadata->>'_partid' IS NULL)
           AND NOT EXISTS (SELECT FROM messages m WHERE m.id = q.messages__id)
         ORDER BY q.id FOR NO KEY UPDATE OF q
    ), tried AS (
        INSERT INTO attempts (ts, queue__id, messages__id, retry_count, token, worker, partid, transportid, jobid, senderdomain,
                              recipientdomain, size, outcome, scope, reply_enhanced, reply_text, duration)
        SELECT at, q.id, q.messages__id, q.retry_count, q.token, q.worker, q.metadata->>'_partid', q.transportid, q.jobid,
               q.senderdomain, q.recipientdomain, q.size, 'deferred', 'us', '4.3.0', 'the message has no body', interval '0'
          FROM queue q JOIN bodiless b ON b.id = q.id
         WHERE q.id = ANY (ids) AND q.status = 'DELIVER'
           AND (partids IS NULL OR q.metadata->>'_partid' = ANY (partids)
                OR array_position(partids, NULL) IS NOT NULL AND q.metadata->>'_partid' IS NULL)
    ), moved AS (
        UPDATE queue q
           SET status = 'HOLD', token = NULL, worker = NULL, lease_until = NULL, lost_count = 0,
               last_error = 'held: the message has no body', metadata = coalesce(q.metadata, '{}') || '{"_quarantineid": "body"}'
          FROM bodiless b
         WHERE q.id = ANY (ids) AND q.status = 'DELIVER' AND q.id = b.id
           AND (partids IS NULL OR q.metadata->>'_partid' = ANY (partids)
                OR array_position(partids, NULL) IS NOT NULL AND q.metadata->>'_partid' IS NULL)
        RETURNING q.id, b.token, q.recipientlocalpart, q.recipientdomain
    )
    SELECT array_agg(m.id ORDER BY m.id), array_agg(m.token ORDER BY m.id),
           left(string_agg(format('%s %s@%s', m.id, m.recipientlocalpart, m.recipientdomain), ', '), 1000)
      INTO held, fences, named FROM moved m;
    IF held IS NOT NULL THEN
        RAISE WARNING 'pillarbox: % held, their body is missing: %', cardinality(held), named;
    END IF;
    RETURN QUERY SELECT * FROM unnest(held, fences);
END $$;
