-- Dead letters: mail that finished without success; its announcement, the view of it, and sending it once more.
SET LOCAL search_path = pillarbox;

-- A result that an operator or application asked for is not announced.
CREATE FUNCTION archive_is_dead(result text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT result NOT IN ('success', 'deleted', 'bounced') $$;

-- Looking for them must not read the history of successful mail.
CREATE INDEX archive_dead ON archive (finished) WHERE result NOT IN ('success', 'deleted', 'bounced');

-- One WARNING for each statement that finishes recipients without success, so that a batch of failures is one line of
-- the server's log; at commit, or not at all. The transaction that records results announces nothing else: its worker
-- does, after COMMIT (queued/result.py). Mail that maintenance finishes as lock_expired is announced here on
-- dead_message, because with pg_cron no worker could: only ids are sent, since a notification is limited to 8000 octets
-- and a longer one would fail the commit.
CREATE FUNCTION archive_died() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    dead integer;
    by_result text;
BEGIN
    SELECT count(*), left(string_agg(format('%s %s@%s %s', id, recipientlocalpart, recipientdomain, result), ', '), 1000)
      INTO dead, by_result FROM finished WHERE archive_is_dead(result);
    IF dead > 0 THEN
        PERFORM pg_notify('dead_message', id::text) FROM finished WHERE result = 'lock_expired' AND pg_notification_queue_usage() < 0.5;
        RAISE WARNING 'pillarbox: % dead: %', dead, by_result;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER archive_died AFTER INSERT ON archive REFERENCING NEW TABLE AS finished
    FOR EACH STATEMENT EXECUTE FUNCTION archive_died();

-- Sends dead letters once more: a new queue row for each, at once, its tries and its age counted from 0; returns the ids
-- of the new rows. The archive keeps its row: it happened. Each is sent once more and not twice, even by callers at the
-- same time: one that has been requeued is left out, whether the new row is still queued or has finished. A letter whose
-- body retention has deleted cannot be sent: `gone` counts those.
CREATE FUNCTION dead_letters_requeue(ids bigint[], OUT requeued bigint[], OUT gone integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF NOT coalesce(acting_has('{operator,admin}'), true) THEN
        RAISE EXCEPTION '% may not requeue dead letters: only operators may', to_json(acting_for()) USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- The next statement sees what those who held these bodies before us have done.
    PERFORM FROM messages m
      WHERE m.id IN (SELECT a.messages__id FROM archive a WHERE a.id = ANY (ids) AND archive_is_dead(a.result))
      ORDER BY m.id FOR NO KEY UPDATE;
    WITH wanted AS MATERIALIZED (
        SELECT DISTINCT ON (a.id) a.* FROM archive a
         WHERE a.id = ANY (ids) AND archive_is_dead(a.result)
           AND NOT EXISTS (SELECT FROM queue q WHERE q.messages__id = a.messages__id AND q.metadata->>'_requeued' = a.id::text)
           AND NOT EXISTS (SELECT FROM archive b WHERE b.messages__id = a.messages__id AND b.metadata->>'_requeued' = a.id::text)
         ORDER BY a.id, a.finished DESC
    ), bodies AS MATERIALIZED (
        SELECT m.id FROM messages m WHERE m.id IN (SELECT messages__id FROM wanted)
    ), again AS (
        INSERT INTO queue (messages__id, actionid, senderip, serverid, saslusername, senderlocalpart, senderdomain,
                           recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority)
        SELECT messages__id, actionid, senderip, serverid, saslusername, senderlocalpart, senderdomain,
               recipientlocalpart, recipientdomain, size,
               (coalesce(metadata, '{}') - '_quarantineid') || jsonb_build_object('_requeued', id::text), transportid, jobid, priority
          FROM wanted WHERE messages__id IN (SELECT id FROM bodies)
        RETURNING id, metadata->>'_partid' AS partid
    ), woken AS (
        SELECT notify_partition(coalesce(partid, '')) FROM (SELECT DISTINCT partid FROM again) AS p
    )
    SELECT (SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM again),
           (SELECT count(*) FROM wanted WHERE messages__id NOT IN (SELECT id FROM bodies))::integer
             + 0 * (SELECT count(*) FROM woken)::integer
      INTO requeued, gone;
END $$;

-- Mail that finished without success: `body` says whether it could be sent again, `requeued` whether it was.
CREATE VIEW dead_letters AS
SELECT a.id, a.messages__id AS message, a.finished, a.result,
       CASE WHEN a.senderdomain IS NULL THEN '' ELSE a.senderlocalpart || '@' || a.senderdomain END AS sender,
       a.recipientlocalpart || '@' || a.recipientdomain AS recipient, a.recipientdomain AS domain, a.ts AS received,
       a.size, a.retry_count, a.last_error, a.worker, a.metadata->>'_partid' AS partition, a.transportid AS transport, a.jobid,
       EXISTS (SELECT FROM messages m WHERE m.id = a.messages__id) AS body,
       EXISTS (SELECT FROM queue q WHERE q.messages__id = a.messages__id AND q.metadata->>'_requeued' = a.id::text)
         OR EXISTS (SELECT FROM archive b
                     WHERE b.messages__id = a.messages__id AND b.metadata->>'_requeued' = a.id::text) AS requeued
  FROM archive a
 WHERE archive_is_dead(a.result);
