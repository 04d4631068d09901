-- Holds the recipients of a batch of attempts whose claims are still ours, writes their attempts, and returns them by id and token.
-- `partids` are the partitions they are looked for in, NULL all of them and what is on hold (queued/claiming/leaves.py).
WITH result AS (
    SELECT * FROM unnest(%(id)s::bigint[], %(token)s::bigint[], %(messages__id)s::uuid[], %(retry_count)s::integer[], %(partid)s::text[],
                         %(transportid)s::text[], %(jobid)s::text[], %(senderdomain)s::text[], %(recipientdomain)s::text[],
                         %(size)s::integer[], %(remote)s::text[], %(outcome)s::text[], %(scope)s::text[], %(uncertain)s::boolean[],
                         %(reply_code)s::integer[], %(reply_enhanced)s::text[], %(reply_text)s::text[], %(seconds)s::float8[],
                         %(tls)s::text[], %(source)s::text[])
        AS r(id, token, messages__id, retry_count, partid, transportid, jobid, senderdomain, recipientdomain, size, remote, outcome,
             scope, uncertain, reply_code, reply_enhanced, reply_text, seconds, tls, source)
), held AS (
    SELECT h.id, h.token
      FROM pillarbox.result_hold(coalesce(%(now)s::timestamptz, now()), %(id)s::bigint[], %(messages__id)s::uuid[], %(token)s::bigint[],
                                 %(partids)s::text[], %(reason)s::text[], %(quarantine)s::text[], %(next_retry)s::timestamptz[]) AS h
), tried AS (
    INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, partid, transportid, jobid, senderdomain,
                                    recipientdomain, size, remote, outcome, scope, uncertain, reply_code, reply_enhanced, reply_text,
                                    duration, tls, source)
    SELECT coalesce(%(now)s::timestamptz, now()), r.id, r.messages__id, r.retry_count, r.token, %(worker)s, r.partid, r.transportid,
           r.jobid, r.senderdomain, r.recipientdomain, r.size, r.remote, r.outcome, r.scope, r.uncertain, r.reply_code, r.reply_enhanced,
           r.reply_text, make_interval(secs => r.seconds), r.tls, r.source
      FROM result r JOIN held h ON h.id = r.id AND h.token = r.token
)
SELECT id, token, false AS kept FROM held
