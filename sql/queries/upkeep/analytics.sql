-- History as the analytics read it, copy it, compare it and let it go; Spark's questions asked of PostgreSQL.

-- name: analytics_all_bodies
-- Lists every body by id.
COPY (SELECT id FROM pillarbox.messages) TO STDOUT (FORMAT csv)

-- name: analytics_ask_deliverability
-- Outcomes by destination, sender, transport and source address, each the most frequent first: one reading for all four.
SELECT CASE grouping(recipientdomain, senderdomain, transportid, source) WHEN 7 THEN 'destinations' WHEN 11 THEN 'senders'
            WHEN 13 THEN 'transports' ELSE 'sources' END AS section,
       coalesce(recipientdomain, senderdomain, transportid, source) AS name, count(*) AS attempts,
       count(*) FILTER (WHERE outcome = 'delivered') AS delivered, count(*) FILTER (WHERE outcome = 'deferred') AS deferred,
       count(*) FILTER (WHERE outcome = 'failed') AS failed, count(*) FILTER (WHERE outcome = 'lease_expired') AS lost,
       count(*) FILTER (WHERE outcome = 'delivered' AND retry_count = 1) AS at_first, count(*) FILTER (WHERE retry_count = 1) AS first
  FROM pillarbox.attempts
 WHERE ts >= %(since)s AND ts < %(until)s
 GROUP BY GROUPING SETS ((recipientdomain), (senderdomain), (transportid), (source))
 ORDER BY section, attempts DESC, name

-- name: analytics_ask_encryption
-- Delivered mail by protocol, and by destination with what went in the clear.
SELECT CASE grouping(recipientdomain) WHEN 1 THEN 'encryption' ELSE 'in_the_clear' END AS section,
       coalesce(recipientdomain, class, '(unknown)') AS name,
       count(*) AS delivered, count(*) FILTER (WHERE tls = 'none') AS plain
  FROM (SELECT *, split_part(tls, ' ', 1) || CASE WHEN tls LIKE '%% verified' THEN ' verified' ELSE '' END AS class FROM pillarbox.attempts) AS a
 WHERE ts >= %(since)s AND ts < %(until)s AND outcome = 'delivered'
 GROUP BY GROUPING SETS ((class), (recipientdomain))
 ORDER BY section, plain DESC, delivered DESC

-- name: analytics_ask_quarantine
-- Held mail that was removed, and held mail that was released after all, by rule.
SELECT coalesce(metadata->>'_policyrule', metadata->>'_quarantineid', metadata->>'_holdreason') AS rule,
       count(*) FILTER (WHERE metadata ? '_quarantineid' AND result IN ('deleted', 'bounced', 'lock_expired')) AS removed,
       count(*) FILTER (WHERE NOT metadata ? '_quarantineid') AS released
  FROM pillarbox.archive
 WHERE finished >= %(since)s AND finished < %(until)s AND metadata ?| ARRAY['_quarantineid', '_holdreason']
 GROUP BY 1 ORDER BY 2 DESC

-- name: analytics_ask_steps
-- Outcomes by step of the retry schedule.
SELECT retry_count AS step, count(*) AS attempts, count(*) FILTER (WHERE outcome = 'delivered') AS delivered,
       count(*) FILTER (WHERE outcome = 'deferred') AS deferred, count(*) FILTER (WHERE outcome = 'failed') AS failed,
       sum(count(*) FILTER (WHERE outcome = 'delivered')) OVER (ORDER BY retry_count) AS reached
  FROM pillarbox.attempts
 WHERE ts >= %(since)s AND ts < %(until)s
 GROUP BY retry_count ORDER BY retry_count

-- name: analytics_ask_suppression
-- Addresses refused for what they are, without mail taken since.
WITH listed AS (
    SELECT recipientlocalpart, recipientdomain, count(*) AS refusals, max(finished) AS last_refused,
           bool_or(last_error ~* '5\.1\.(1|2|3|6|10)\M|(no such|unknown|invalid|nonexistent) (user|recipient|mailbox|address)'
                   OR last_error ~* '(user|recipient|mailbox|address|account) (is )?(unknown|not found|disabled|does( not|n''t) exist)') AS no_such
      FROM pillarbox.archive
     WHERE finished >= %(since)s AND finished < %(until)s AND result = 'failed' AND coalesce(last_error, '') !~ '5\.7\.\d'
     GROUP BY 1, 2
    HAVING count(*) >= 3 OR octet_length(recipientlocalpart) > 64
        OR bool_or(last_error ~* '5\.1\.(1|2|3|6|10)\M|(no such|unknown|invalid|nonexistent) (user|recipient|mailbox|address)'
                   OR last_error ~* '(user|recipient|mailbox|address|account) (is )?(unknown|not found|disabled|does( not|n''t) exist)')
), taken AS (
    SELECT a.recipientlocalpart, a.recipientdomain, max(a.finished) AS last_taken
      FROM pillarbox.archive a JOIN listed USING (recipientlocalpart, recipientdomain)
     WHERE a.finished >= %(since)s AND a.finished < %(until)s AND a.result = 'success'
     GROUP BY 1, 2
)
SELECT recipientlocalpart, recipientdomain, no_such, refusals, last_refused
  FROM listed LEFT JOIN taken USING (recipientlocalpart, recipientdomain)
 WHERE last_taken IS NULL OR last_taken < last_refused
 ORDER BY refusals DESC, last_refused DESC LIMIT %(top)s

-- name: analytics_ask_throttling
-- Destinations that deferred mail for our pace: in how many hours, how much, and what they let through.
WITH hour AS (
    SELECT recipientdomain, date_trunc('hour', ts) AS hour, count(*) AS attempts, count(*) FILTER (WHERE outcome = 'delivered') AS delivered,
           count(*) FILTER (WHERE outcome = 'deferred' AND (reply_code = 421 OR reply_enhanced LIKE '4.7.%%'
               OR reply_text ~* '\mrate\M|rate.?limit|too (many|much|fast)|throttl|deferred due to|exceeded|unusual (rate|volume)')
               AND coalesce(reply_text, '') !~* 'gr[ae]y.?list') AS slowed
      FROM pillarbox.attempts
     WHERE ts >= %(since)s AND ts < %(until)s
     GROUP BY 1, 2
)
SELECT recipientdomain, count(*) FILTER (WHERE slowed >= 5 AND slowed >= 0.1 * attempts) AS slowed_hours, count(*) AS hours,
       sum(slowed) FILTER (WHERE slowed >= 5 AND slowed >= 0.1 * attempts) AS slowed,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY delivered) FILTER (WHERE slowed >= 5 AND slowed >= 0.1 * attempts) AS let_through
  FROM hour
 GROUP BY recipientdomain
HAVING count(*) FILTER (WHERE slowed >= 5 AND slowed >= 0.1 * attempts) > 0
 ORDER BY slowed DESC, recipientdomain LIMIT %(top)s

-- name: analytics_ask_volume
-- Attempts by the hour.
SELECT date_trunc('hour', ts) AS hour, count(*) AS attempts
  FROM pillarbox.attempts
 WHERE ts >= %(since)s AND ts < %(until)s
 GROUP BY 1 ORDER BY 1

-- name: analytics_ask_waiting
-- Percentiles of the time to deliver: of all, by destination and by transport.
SELECT CASE grouping(recipientdomain, transportid) WHEN 3 THEN 'queue_time' WHEN 1 THEN 'delivery_time' ELSE 'transport_time' END AS section,
       coalesce(recipientdomain, transportid, 'all') AS name, count(*) AS recipients,
       percentile_disc(ARRAY[0.5, 0.9, 0.99, 1]) WITHIN GROUP (ORDER BY extract(epoch FROM finished - ts)::float8) AS seconds
  FROM pillarbox.archive
 WHERE finished >= %(since)s AND finished < %(until)s AND finished >= ts AND result = 'success'
 GROUP BY GROUPING SETS ((), (recipientdomain), (transportid))
 ORDER BY section, recipients DESC, name

-- name: analytics_ask_weights
-- The cost of each partition id: attempts, and the seconds they took.
SELECT partid, count(*) AS attempts, sum(date_part('epoch', duration)) FILTER (WHERE duration >= '0') AS seconds
  FROM pillarbox.attempts
 WHERE ts >= %(since)s AND ts < %(until)s
 GROUP BY partid ORDER BY seconds DESC NULLS LAST

-- name: analytics_ask_wordings
-- Replies of peers without addresses, numbers, ids, URLs, names and quoted words, each wording once (variants stay apart).
SELECT outcome, reply_code, reply_enhanced,
       regexp_replace(regexp_replace(coalesce(reply_text, '(no reply)'),
           'https?://\S+|<[^<>\s]*>|"[^"]*"|[[:alnum:]_.+=-]+@[[:alnum:]_.-]+|\m[a-z-]*[0-9_][[:alnum:]_.:+/=-]*|\m[a-z-]+(\.[[:alnum:]_-]+)+',
           '*', 'gi'), '(\*[\s.,:;()-]*){2,}', '* ', 'g') AS wording,
       count(*) AS attempts, count(DISTINCT recipientdomain) AS destinations, min(reply_text) AS example
  FROM pillarbox.attempts
 WHERE ts >= %(since)s AND ts < %(until)s AND outcome IN ('failed', 'deferred')
 GROUP BY 1, 2, 3, 4 ORDER BY attempts DESC, wording LIMIT %(top)s

-- name: analytics_audit_days
-- Lists the days on which commands were recorded; they are in one table, so there is no leaf.
SELECT 0::bigint AS leaf, (ts AT TIME ZONE 'UTC')::date AS day, 0::bigint AS pages FROM pillarbox.audit GROUP BY 2 ORDER BY 2

-- name: analytics_bodies
-- Lists the bodies older than an hour that no note gives to the sweep, by id.
COPY (SELECT m.id FROM pillarbox.messages m
       WHERE m.ts < now() - interval '1 hour' AND NOT EXISTS (SELECT FROM pillarbox.released r WHERE r.messages__id = m.id))
  TO STDOUT (FORMAT csv)

-- name: analytics_bodiless
-- Takes a second look at recipients that seemed to have no body, and lists those that have none.
SELECT q.id FROM pillarbox.queue q
 WHERE q.id = ANY(%(ids)s) AND NOT EXISTS (SELECT FROM pillarbox.messages m WHERE m.id = q.messages__id) ORDER BY q.id

-- name: analytics_columns
-- Lists the columns that this database's table of history has.
SELECT attname::text AS name FROM pg_attribute
 WHERE attrelid = to_regclass('pillarbox.' || %(table)s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum

-- name: analytics_copy_in
-- Writes rows of history that the generator made.
COPY {table} ({columns}) FROM STDIN (FORMAT csv)

-- name: analytics_copy_out
-- Reads a range of pages of one day of history.
-- Pages rather than ids: attempts has no index by id, and a range of pages is read without one (TID Range Scan) in the
-- order it lies on disk. The instants leave one partition, whose pages these are.
COPY (SELECT {columns} FROM {table}
       WHERE {instant} >= {since} AND {instant} < {until} AND ctid >= {first}::tid AND ctid < {last}::tid{conditions})
  TO STDOUT (FORMAT csv)

-- name: analytics_days
-- Lists the day partitions of a table of history: their oid, day, and pages now.
SELECT c.oid::bigint AS leaf, to_date(right(c.relname, 8), 'YYYYMMDD') AS day,
       (pg_relation_size(c.oid) / current_setting('block_size')::bigint)::bigint AS pages
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = to_regclass('pillarbox.' || %(table)s) AND c.relname ~ '_\d{8}$' AND NOT i.inhdetachpending
 ORDER BY day

-- name: analytics_drop
-- Drops one day of history that was verified, unless it has other rows by now.
SELECT pillarbox.history_drop_if_counted(%(table)s, %(day)s, %(rows)s, %(keep)s) AS dropped

-- name: analytics_epoch
-- Tells today's date at the server, in UTC.
SELECT (now() AT TIME ZONE 'UTC')::date AS today

-- name: analytics_fingerprint
-- Sums up one day of history, so that a copy of it can be compared: rows, ids, instants, sizes and octets of text.
SELECT count(*) AS rows, coalesce(sum(id), 0) AS ids,
       coalesce(sum(round(date_part('epoch', {instant} - {since}::timestamptz) * 1000000)::bigint), 0) AS instants,
       coalesce(sum({sizes}), 0) AS sizes, coalesce(sum({octets}), 0) AS octets
  FROM {table} WHERE {instant} >= {since} AND {instant} < {until}

-- name: analytics_leaf_there
-- Tells whether a day partition, named by its oid, is still part of history.
SELECT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = %(leaf)s AND NOT inhdetachpending) AS there

-- name: analytics_orphans_hold
-- Holds recipients that have no body, after a second look.
SELECT id FROM pillarbox.orphans_hold(%(ids)s) AS held(id)

-- name: analytics_orphans_release
-- Gives bodies that no recipient needs to the sweep, after a second look.
SELECT id::text FROM pillarbox.orphans_release(%(ids)s) AS released(id)

-- name: analytics_recipients
-- Lists every recipient that is not finished: its id and its body.
COPY (SELECT id, messages__id FROM pillarbox.queue) TO STDOUT (FORMAT csv)

-- name: analytics_reserve
-- Takes `count` numbers from each sequence that history is numbered by, and returns the first of each.
SELECT setval('pillarbox.attempts_id_seq', nextval('pillarbox.attempts_id_seq') + %(count)s) - %(count)s AS attempt,
       setval('pillarbox.queue_id_seq', nextval('pillarbox.queue_id_seq') + %(count)s) - %(count)s AS recipient,
       setval('pillarbox.claim_token_seq', nextval('pillarbox.claim_token_seq') + %(count)s) - %(count)s AS token

-- name: analytics_setting
-- Sets one setting of this session.
SELECT set_config(%(name)s, %(value)s, false)

-- name: analytics_sizes
-- Days of history that have rows, and the octets that each takes, with its indexes.
SELECT %(table)s AS history, to_date(right(c.relname, 8), 'YYYYMMDD') AS day, pg_total_relation_size(c.oid) AS octets
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = to_regclass('pillarbox.' || %(table)s) AND c.relname ~ '_\d{8}$' AND NOT i.inhdetachpending AND pg_relation_size(c.oid) > 0
 ORDER BY day

-- name: analytics_unknown_recipients
-- Takes a second look at recipients that attempts name, and lists those that are neither queued nor archived.
SELECT id FROM unnest(%(ids)s::bigint[]) AS named(id)
 WHERE NOT EXISTS (SELECT FROM pillarbox.queue q WHERE q.id = named.id)
   AND NOT EXISTS (SELECT FROM pillarbox.archive a WHERE a.id = named.id) ORDER BY id

-- name: analytics_unneeded
-- Takes a second look at bodies that seemed to be orphans, and lists those that are.
SELECT m.id::text FROM pillarbox.messages m
 WHERE m.id = ANY(%(ids)s) AND NOT EXISTS (SELECT FROM pillarbox.queue q WHERE q.messages__id = m.id)
   AND NOT EXISTS (SELECT FROM pillarbox.released r WHERE r.messages__id = m.id) ORDER BY m.id

-- name: stream_attempts
-- Attempts that one snapshot sees and an earlier one does not, of these days, with what figures by the minute need.
--
-- An instant after the snapshot was taken (the clock was put back) is taken as that: it would end the minutes before it.
COPY (SELECT least(ts, {at}::timestamptz), outcome, date_part('epoch', duration) FROM pillarbox.attempts
       WHERE ts >= {since}::timestamptz AND xact >= pg_snapshot_xmin({after}::pg_snapshot)::text::bigint
         AND xact < pg_snapshot_xmax({upto}::pg_snapshot)::text::bigint
         AND pg_visible_in_snapshot(xact::text::xid8, {upto}::pg_snapshot) AND NOT pg_visible_in_snapshot(xact::text::xid8, {after}::pg_snapshot))
  TO STDOUT (FORMAT csv)

-- name: stream_next
-- The next snapshot, at most `span` transactions on, the time now, whether it is the present one, and whether it sees an attempt
-- that `after` does not.
SELECT n.upto::text AS upto, clock_timestamp() AS at, pg_snapshot_xmax(n.upto) = pg_snapshot_xmax(pg_current_snapshot()) AS last,
       EXISTS (SELECT FROM pillarbox.attempts a
                WHERE a.ts >= %(since)s::timestamptz AND a.xact >= pg_snapshot_xmin(%(after)s::pg_snapshot)::text::bigint
                  AND a.xact < pg_snapshot_xmax(n.upto)::text::bigint AND pg_visible_in_snapshot(a.xact::text::xid8, n.upto)
                  AND NOT pg_visible_in_snapshot(a.xact::text::xid8, %(after)s::pg_snapshot)) AS news
  FROM (SELECT CASE WHEN %(span)s::bigint IS NULL THEN pg_current_snapshot()
                    ELSE pillarbox.webhook_next(%(after)s::pg_snapshot, %(span)s::bigint) END AS upto) AS n

-- name: stream_since
-- The minute from which a stream without a position counts: ten minutes before the newest that is counted, at most a day back.
SELECT date_trunc('minute', greatest(least(max(minute), now()) - interval '10 minutes', now() - interval '1 day')) AS since
  FROM pillarbox.report_minutes
