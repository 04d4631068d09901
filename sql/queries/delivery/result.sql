-- Results: what became of each attempt, fenced by the claim.

-- name: result_hold_if_claimed
-- Holds the recipients of a batch of attempts whose claims are still ours, writes their attempts, and returns them by id and token.
-- `partids` are the partitions they are looked for in, NULL all of them and what is on hold (queued/claiming/leaves.py).
WITH result AS (
    SELECT * FROM unnest(%(id)s::bigint[], %(token)s::bigint[], %(messages__id)s::uuid[], %(retry_count)s::integer[], %(partid)s::text[],
                         %(transportid)s::text[], %(jobid)s::text[], %(senderdomain)s::text[], %(recipientdomain)s::text[],
                         %(size)s::integer[], %(remote)s::text[], %(outcome)s::text[], %(scope)s::text[], %(uncertain)s::boolean[],
                         %(reply_code)s::integer[], %(reply_enhanced)s::text[], %(reply_text)s::text[], %(seconds)s::float8[],
                         %(tls)s::text[], %(source)s::text[], %(conversation)s::text[])
        AS r(id, token, messages__id, retry_count, partid, transportid, jobid, senderdomain, recipientdomain, size, remote, outcome,
             scope, uncertain, reply_code, reply_enhanced, reply_text, seconds, tls, source, conversation)
), held AS (
    SELECT h.id, h.token
      FROM pillarbox.result_hold(coalesce(%(now)s::timestamptz, now()), %(id)s::bigint[], %(messages__id)s::uuid[], %(token)s::bigint[],
                                 %(partids)s::text[], %(reason)s::text[], %(quarantine)s::text[], %(next_retry)s::timestamptz[]) AS h
), tried AS (
    INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, partid, transportid, jobid, senderdomain,
                                    recipientdomain, size, remote, outcome, scope, uncertain, reply_code, reply_enhanced, reply_text,
                                    duration, tls, source, conversation)
    SELECT coalesce(%(now)s::timestamptz, now()), r.id, r.messages__id, r.retry_count, r.token, %(worker)s, r.partid, r.transportid,
           r.jobid, r.senderdomain, r.recipientdomain, r.size, r.remote, r.outcome, r.scope, r.uncertain, r.reply_code, r.reply_enhanced,
           r.reply_text, make_interval(secs => r.seconds), r.tls, r.source, r.conversation
      FROM result r JOIN held h ON h.id = r.id AND h.token = r.token
)
SELECT id, token, false AS kept FROM held

-- name: result_record_bare
-- Records a success of which PostgreSQL refused everything else: the recipient is finished, without a row in attempts and without
-- a notice. Returns it by id and token if the claim was still ours. {among} says where it is looked for (queued/claiming/leaves.py).
WITH finished AS (
    DELETE FROM pillarbox.queue q
     USING unnest(%(ids)s::bigint[], %(messages)s::uuid[], %(tokens)s::bigint[]) AS h(claimed_id, claimed_message, claimed_token)
     WHERE q.id = ANY(%(ids)s::bigint[]) AND {among}
       AND q.id = h.claimed_id AND (q.messages__id = h.claimed_message) IS TRUE AND q.token = h.claimed_token
    RETURNING q.*, h.claimed_token
), archived AS (
    INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, senderip, serverid, saslusername, senderlocalpart,
                                   senderdomain, recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority,
                                   retry_count, worker, msgid, subject)
    SELECT id, messages__id, actionid, coalesce(%(now)s::timestamptz, now()), %(result)s::text, ts, senderip, serverid, saslusername,
           senderlocalpart, senderdomain, recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority, retry_count,
           %(worker)s::text, msgid, subject
      FROM finished LEFT JOIN LATERAL pillarbox.message_headers(messages__id) ON true
)
SELECT id, claimed_token AS token, false AS kept FROM finished

-- name: result_record_if_claimed
-- Records the results of a batch of attempts, and returns the claims, by id and token, that were still ours; `kept` for those
-- that were to expire and are kept.
-- One batch may hold two results of a recipient, of a claim and of one that came after it.
--
-- The fence is id, message and random token, for ids are given again once a standby that lagged is promoted. A row that
-- another claim has taken since is left alone, and it does not come back;
-- result_record_lost then records that attempt. There is no condition on status: mail that an operator put on hold while it
-- was being sent is delivered all the same, and must not be sent again on release. But it does not expire: that stays
-- held, and its sender is not notified that it is late.
--
-- What the queue row says already is not sent here again: it would double what is written, sent and read for each result.
-- A notice is a notification for the sender (queued/dsn/requested.py): one of `delayed` for each recipient, however many of
-- its tries ask for it (`late` says so). It is written here, so that neither a crash nor a second worker loses or
-- doubles it. There is rarely any, so they come apart, and the rest pays nothing for them.
--
-- {among} says in which partitions they are looked for (queued/claiming/leaves.py).
-- `id = ANY` beside the join: one walk along each leaf's UNIQUE index for the whole batch, where the join alone may be
-- planned as reading a leaf from end to end.
-- `IS TRUE` keeps the index on messages__id from serving the join by being read from end to end.
--
-- generate_series, because PostgreSQL expects ten entries of an array that it does not know, but a thousand rows of this:
-- for ten it compares each recipient with each result, which took 120 of 145 ms for 500; for a thousand it makes a hash
-- table. CASE, because of an OR in its place it expects few rows, and would compare again.
WITH result AS (
    SELECT claimed_id, claimed_message, claimed_token, remote, outcome, scope, uncertain, reply_code, reply_enhanced, reply_text, seconds, result, due,
           tls, source, conversation, late
      FROM ROWS FROM (
               unnest(%(id)s::bigint[], %(messages__id)s::uuid[], %(token)s::bigint[], %(remote)s::text[], %(outcome)s::text[], %(scope)s::text[],
                      %(uncertain)s::boolean[], %(reply_code)s::integer[], %(reply_enhanced)s::text[], %(reply_text)s::text[],
                      %(seconds)s::float8[], %(result)s::text[], %(next_retry)s::timestamptz[], %(tls)s::text[], %(source)s::text[],
                      %(conversation)s::text[], %(late)s::boolean[]),
               generate_series(1, cardinality(%(id)s::bigint[])))
        AS r(claimed_id, claimed_message, claimed_token, remote, outcome, scope, uncertain, reply_code, reply_enhanced, reply_text, seconds, result, due,
             tls, source, conversation, late, number)
), finished AS (
    DELETE FROM pillarbox.queue q
     USING result r
     WHERE q.id = ANY(%(id)s::bigint[]) AND {among}
       AND q.id = r.claimed_id AND (q.messages__id = r.claimed_message) IS TRUE AND q.token = r.claimed_token AND r.result IS NOT NULL
       AND NOT (r.result = 'expired' AND q.status = 'HOLD')
    RETURNING q.*, r.*
), deferred AS (
    UPDATE pillarbox.queue q
       SET next_retry = coalesce(r.due, q.next_retry), last_error = r.reply_text, token = NULL, worker = NULL, lease_until = NULL, lost_count = 0,
           noticed = CASE WHEN r.late AND q.status <> 'HOLD' THEN coalesce(q.noticed, %(now)s::timestamptz, now())
                          ELSE q.noticed END
      FROM result r
     WHERE q.id = ANY(%(id)s::bigint[]) AND {among}
       AND q.id = r.claimed_id AND (q.messages__id = r.claimed_message) IS TRUE AND q.token = r.claimed_token
       AND CASE WHEN r.result IS NULL THEN true ELSE r.result = 'expired' AND q.status = 'HOLD' END
    RETURNING q.*, r.*
), archived AS (
    INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, senderip, serverid, saslusername, senderlocalpart,
                                   senderdomain, recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority,
                                   retry_count, last_error, worker, msgid, subject)
    SELECT id, messages__id, actionid, coalesce(%(now)s::timestamptz, now()), result, ts, senderip, serverid, saslusername, senderlocalpart,
           senderdomain, recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority, retry_count,
           CASE WHEN outcome = 'delivered' THEN last_error ELSE reply_text END, worker, msgid, subject
      FROM finished LEFT JOIN LATERAL pillarbox.message_headers(messages__id) ON true
), tried AS (
    INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, partid, transportid, jobid, senderdomain,
                                    recipientdomain, size, remote, outcome, scope, uncertain, reply_code, reply_enhanced, reply_text, duration,
                                    tls, source, conversation)
    SELECT coalesce(%(now)s::timestamptz, now()), id, messages__id, retry_count, claimed_token, %(worker)s, metadata->>'_partid',
           transportid, jobid, senderdomain, recipientdomain, size, remote, outcome, scope, uncertain, reply_code, reply_enhanced,
           reply_text, make_interval(secs => seconds), tls, source, conversation
      FROM (SELECT * FROM finished UNION ALL SELECT * FROM deferred) AS ours
), noticed_now AS (
    -- `noticed` is read again: here as it was before this statement. By `ours`, of which the planner expects few rows: by `n` it
    -- seems dear, although there is rarely any, and the statement would be planned again each time.
    INSERT INTO pillarbox.notices (ts, due, kind, messages__id, queue__id, senderlocalpart, senderdomain, recipientlocalpart,
                                   recipientdomain, metadata, remote, reply_code, reply_enhanced, reply_text, arrived, will_retry_until)
    SELECT coalesce(%(now)s::timestamptz, now()), coalesce(%(now)s::timestamptz, now()), n.notice, messages__id, id, senderlocalpart,
           senderdomain, recipientlocalpart, recipientdomain, metadata, remote, reply_code, reply_enhanced, reply_text, ts, n.until
      FROM unnest(%(notice_id)s::bigint[], %(notice_token)s::bigint[], %(notice)s::text[], %(until)s::timestamptz[])
               AS n(notice_id, notice_token, notice, until)
      JOIN (SELECT * FROM finished UNION ALL SELECT * FROM deferred) AS ours ON id = notice_id AND claimed_token = notice_token
     WHERE senderdomain IS NOT NULL AND cardinality(%(notice_id)s::bigint[]) > 0
       AND NOT (ours.status = 'HOLD' AND (n.notice = 'delayed' OR ours.result = 'expired'))
       AND (n.notice <> 'delayed' OR (SELECT q.noticed IS NULL FROM pillarbox.queue q WHERE q.id = ours.id AND {among}))
)
SELECT id, claimed_token AS token, false AS kept FROM finished
 UNION ALL SELECT id, claimed_token, result IS NOT NULL FROM deferred

-- name: result_record_lost
-- Records the attempts of results that came too late: the claim was another's by then, or the row is gone, but they were made.
INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, partid, transportid, jobid, senderdomain,
                                recipientdomain, size, remote, outcome, scope, uncertain, reply_code, reply_enhanced, reply_text, duration,
                                tls, source, conversation)
SELECT coalesce(%(now)s::timestamptz, now()), id, messages__id, retry_count, token, %(worker)s, partid, transportid, jobid, senderdomain,
       recipientdomain, size, remote, outcome, scope, uncertain, reply_code, reply_enhanced, reply_text, make_interval(secs => seconds),
       tls, source, conversation
  FROM unnest(%(id)s::bigint[], %(messages__id)s::uuid[], %(retry_count)s::integer[], %(token)s::bigint[], %(partid)s::text[],
              %(transportid)s::text[], %(jobid)s::text[], %(senderdomain)s::text[], %(recipientdomain)s::text[], %(size)s::integer[],
              %(remote)s::text[], %(outcome)s::text[], %(scope)s::text[], %(uncertain)s::boolean[], %(reply_code)s::integer[],
              %(reply_enhanced)s::text[], %(reply_text)s::text[], %(seconds)s::float8[], %(tls)s::text[], %(source)s::text[], %(conversation)s::text[])
    AS r(id, messages__id, retry_count, token, partid, transportid, jobid, senderdomain, recipientdomain, size, remote, outcome, scope,
         uncertain, reply_code, reply_enhanced, reply_text, seconds, tls, source, conversation)

-- name: result_record_success_if_claimed
-- Records the results of a batch of attempts that all succeeded and notify no sender, as result_record_if_claimed does: the same fence,
-- the same rows, the same answer. Most batches are such. PostgreSQL prepares every part of a statement each time, also those
-- that find no row: without the parts for deferrals and notices it takes a fifth less of its time for a single result.
--
-- OFFSET 0 keeps the message's header a look for each recipient along the primary key, in place of a join with all messages.
WITH finished AS (
    DELETE FROM pillarbox.queue q
     USING ROWS FROM (
               unnest(%(id)s::bigint[], %(messages__id)s::uuid[], %(token)s::bigint[], %(remote)s::text[], %(outcome)s::text[], %(scope)s::text[],
                      %(uncertain)s::boolean[], %(reply_code)s::integer[], %(reply_enhanced)s::text[], %(reply_text)s::text[],
                      %(seconds)s::float8[], %(tls)s::text[], %(source)s::text[]),
               generate_series(1, cardinality(%(id)s::bigint[])))
        AS r(claimed_id, claimed_message, claimed_token, remote, outcome, scope, uncertain, reply_code, reply_enhanced, reply_text, seconds,
             tls, source, number)
     WHERE q.id = ANY(%(id)s::bigint[]) AND {among}
       AND q.id = r.claimed_id AND (q.messages__id = r.claimed_message) IS TRUE AND q.token = r.claimed_token
    RETURNING q.*, r.*
), archived AS (
    INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, senderip, serverid, saslusername, senderlocalpart,
                                   senderdomain, recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority,
                                   retry_count, last_error, worker, msgid, subject)
    SELECT id, messages__id, actionid, coalesce(%(now)s::timestamptz, now()), 'success', ts, senderip, serverid, saslusername,
           senderlocalpart, senderdomain, recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority, retry_count,
           last_error, worker, msgid, subject
      FROM finished LEFT JOIN LATERAL (SELECT m.msgid, m.subject FROM pillarbox.messages m WHERE m.id = messages__id OFFSET 0) AS header ON true
), tried AS (
    INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, partid, transportid, jobid, senderdomain,
                                    recipientdomain, size, remote, outcome, scope, uncertain, reply_code, reply_enhanced, reply_text, duration,
                                    tls, source)
    SELECT coalesce(%(now)s::timestamptz, now()), id, messages__id, retry_count, claimed_token, %(worker)s, metadata->>'_partid',
           transportid, jobid, senderdomain, recipientdomain, size, remote, outcome, scope, uncertain, reply_code, reply_enhanced,
           reply_text, make_interval(secs => seconds), tls, source
      FROM finished
)
SELECT id, claimed_token AS token, false AS kept FROM finished

-- name: result_recorded_before
-- Which of these results are recorded already, by a statement whose answer was lost on its way, and whether the claim was
-- still ours then: who took it over has written an attempt of its own for the same token.
SELECT r.id, r.token, NOT bool_or(a.outcome = 'lease_expired') AS ours
  FROM unnest(%(ids)s::bigint[], %(messages)s::uuid[], %(tokens)s::bigint[]) AS r(id, messages__id, token)
  JOIN pillarbox.attempts a ON a.messages__id = r.messages__id AND a.queue__id = r.id AND a.token = r.token AND a.ts >= %(since)s
 GROUP BY r.id, r.token
HAVING bool_or(a.outcome <> 'lease_expired')

-- name: result_wait
-- Waits for the transactions that change these rows at this moment: perhaps one of a backend that goes on with our statement,
-- though our connection to it is lost.
SELECT FROM pillarbox.queue q
 WHERE q.id = ANY (%(ids)s::bigint[])
 ORDER BY q.id
   FOR NO KEY UPDATE
