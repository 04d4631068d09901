-- Why mail is on hold: `_quarantineid` in its metadata. Its release ends that, and a missing body is a reason.
SET LOCAL search_path = pillarbox;

-- Whoever releases, by the view `mail`, at the root or at the leaf: mail that is on its way again has no reason to be
-- held. It would else be taken for poison at its next DELETE (maintain_finish).
CREATE FUNCTION queue_released() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    NEW.metadata := NEW.metadata - '_quarantineid';
    RETURN NEW;
END $$;
CREATE TRIGGER queue_released BEFORE UPDATE OF status ON queue
    FOR EACH ROW WHEN (OLD.status = 'HOLD' AND NEW.status = 'DELIVER' AND NEW.metadata ? '_quarantineid')
    EXECUTE FUNCTION queue_released();

-- Holds claimed recipients that have no body, with the reason, and returns their ids: no further try could send them.
-- That they have none is looked up here, whatever the caller says. Each gets the attempt row that its claim is owed.
CREATE FUNCTION hold_missing_body(at timestamptz, ids bigint[], tokens bigint[]) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    held bigint[];
    told text;
BEGIN
    WITH bodiless AS MATERIALIZED (
        SELECT q.id FROM queue q JOIN unnest(ids, tokens) AS h(id, token) ON h.id = q.id AND h.token = q.token
         WHERE q.id = ANY (ids) AND q.status = 'DELIVER' AND NOT EXISTS (SELECT FROM messages m WHERE m.id = q.messages__id)
         ORDER BY q.id FOR NO KEY UPDATE OF q
    ), tried AS (
        INSERT INTO attempts (ts, queue__id, messages__id, retry_count, token, worker, partid, transportid, jobid, senderdomain,
                              recipientdomain, size, outcome, scope, reply_enhanced, reply_text, duration)
        SELECT at, q.id, q.messages__id, q.retry_count, q.token, q.worker, q.metadata->>'_partid', q.transportid, q.jobid,
               q.senderdomain, q.recipientdomain, q.size, 'deferred', 'us', '4.3.0', 'the message has no body', interval '0'
          FROM queue q JOIN bodiless b ON b.id = q.id
         WHERE q.id = ANY (ids) AND q.status = 'DELIVER'
    ), moved AS (
        UPDATE queue q
           SET status = 'HOLD', token = NULL, worker = NULL, lease_until = NULL, lost_count = 0,
               last_error = 'held: the message has no body', metadata = coalesce(q.metadata, '{}') || '{"_quarantineid": "body"}'
          FROM bodiless b
         WHERE q.id = ANY (ids) AND q.status = 'DELIVER' AND q.id = b.id
        RETURNING q.id, q.recipientlocalpart, q.recipientdomain
    )
    SELECT array_agg(m.id ORDER BY m.id), left(string_agg(format('%s %s@%s', m.id, m.recipientlocalpart, m.recipientdomain), ', '), 1000)
      INTO held, told FROM moved m;
    IF held IS NOT NULL THEN
        RAISE WARNING 'pillarbox: % held, their body is missing: %', cardinality(held), told;
    END IF;
    RETURN QUERY SELECT unnest(held);
END $$;

-- Least privilege, as in roles.
REVOKE ALL ON FUNCTION queue_released(), hold_missing_body(timestamptz, bigint[], bigint[]) FROM PUBLIC;
DO $$
BEGIN
    IF to_regrole('pillarbox_queued') IS NOT NULL THEN
        GRANT EXECUTE ON FUNCTION hold_missing_body TO pillarbox_queued;
    END IF;
END $$;
