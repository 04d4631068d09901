-- Claims: rows taken by a worker, their lease, and their way back.

-- name: claim
-- Takes up to `batch` due recipients of this worker's partitions: sets the token, counts the try and makes each row due
-- again by itself when the lease ends, before anything is sent. Urgent mail first, bulk last; within a class in the order
-- it fell due. But `ordinary` places are kept for mail that is not urgent, if so much is due; urgent mail fills what it leaves
-- (`sure` are the places that urgent mail has whatever else is due). Urgent and ordinary mail are two classes each: fresh, and
-- what was tried or parked before (it has a `last_error`). Up to `retried` places, or that part of what urgent mail leaves, are
-- kept for the latter when so many are due, and it fills what fresh mail leaves. A part of a place is a chance of it: rounded,
-- it would go to the same of the two as long as urgent mail without end leaves a place or two.
--
-- {where} is the worker's own condition; it stands in the UPDATE too, so that all prune to the worker's leaves.
-- Each class is one scan, its ORDER BY exactly its index; MATERIALIZED keeps the planner from running a LIMIT twice.
-- The UPDATE has no join: its plan, made while statistics say that a leaf is empty, would read the whole leaf for each row that it
-- takes. What a row was before is therefore read from `due`, of rows whose lease ran out alone.
-- The floors, one for each class, keep the scans off the dead entries at the lower ends of their indexes (see
-- queued/claiming/claim.py). The scan of suspects has none: its index holds little, and it is begun once a full pass.
-- PostgreSQL prepares every part of a statement each time, also a part that then finds no row. So the bounds are plain
-- expressions and not SELECTs: daemons keep one plan for all values (connection_walk). And `due` counts no class: it reads the
-- classes in order, up to the number of places. Bulk mail comes last, so a claim locks it only if a place is left.
-- `suspects` true takes what two claims in a row have lost, else everything but that: what kills its worker is thus tried
-- by itself, not with a batch of innocents. It has a scan of its own, whose index holds only what was lost before. The
-- scans that are not wanted are not begun.
-- `token` is random: numbers of a sequence are given again once a standby that lagged is promoted, and would let the result of
-- one claim settle another. `leaf` tells which rows lie together (queued/claiming/leaves.py).
-- {unanswered} says which rows a claim of this worker took whose answer was lost with the connection: no attempt has begun them
-- and none will, so they are due at once, and their try is counted already. The scans are those of that claim and meet them
-- first. {ended} says which rows processes of this worker took that have ended since: their leases count as over. Both are
-- text, mostly `false`: with a parameter PostgreSQL looks at the lease after the metadata, of every leased row.
-- Any other row that still carries a token had its lease run out: that try has no result and never will, so it gets its attempt
-- row here. `login_refused` is read from the words that queued/outcome/own_login.py leaves: a worker that has just begun knows of no
-- refused login, and must not give up what stayed for one. `newest` is the highest id given so far, in any partition.
WITH urgent_kept AS MATERIALIZED (
    SELECT id FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority > 0 AND last_error IS NOT NULL AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND next_retry >= coalesce(%(floor_urgent_retried)s::timestamptz, '-infinity')
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()) OR {unanswered} OR {ended})
       AND lost_count + (token IS NOT NULL)::integer < 2 AND NOT %(suspects)s::boolean
     ORDER BY next_retry, id LIMIT least(%(retried)s, %(batch)s)
       FOR NO KEY UPDATE SKIP LOCKED
), urgent_fresh AS MATERIALIZED (
    SELECT id, token, worker, last_retry FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority > 0 AND last_error IS NULL AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND next_retry >= coalesce(%(floor_urgent)s::timestamptz, '-infinity')
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()) OR {unanswered} OR {ended})
       AND lost_count + (token IS NOT NULL)::integer < 2 AND NOT %(suspects)s::boolean
     ORDER BY next_retry, id LIMIT %(batch)s - (SELECT count(*) FROM urgent_kept)
       FOR NO KEY UPDATE SKIP LOCKED
), urgent_retried AS MATERIALIZED (
    SELECT id, token, worker, last_retry FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority > 0 AND last_error IS NOT NULL AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND next_retry >= coalesce(%(floor_urgent_retried)s::timestamptz, '-infinity')
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()) OR {unanswered} OR {ended})
       AND lost_count + (token IS NOT NULL)::integer < 2 AND NOT %(suspects)s::boolean
     ORDER BY next_retry, id LIMIT %(batch)s - (SELECT count(*) FROM urgent_fresh)
       FOR NO KEY UPDATE SKIP LOCKED
), urgent AS MATERIALIZED (
    -- In this order, so that what ordinary mail takes is not taken from the share of those tried before.
    (SELECT * FROM urgent_retried LIMIT %(retried)s) UNION ALL SELECT * FROM urgent_fresh
    UNION ALL (SELECT * FROM urgent_retried OFFSET %(retried)s)
), sure AS MATERIALIZED (
    SELECT least(count(*), %(batch)s - %(ordinary)s) AS places FROM urgent
), kept AS MATERIALIZED (
    SELECT id FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NOT NULL AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND next_retry >= coalesce(%(floor_retried)s::timestamptz, '-infinity')
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()) OR {unanswered} OR {ended})
       AND lost_count + (token IS NOT NULL)::integer < 2 AND NOT %(suspects)s::boolean
     ORDER BY next_retry, id LIMIT (%(retried)s * (%(batch)s - (SELECT places FROM sure)) + floor(random() * %(batch)s)::integer) / greatest(%(batch)s, 1)
       FOR NO KEY UPDATE SKIP LOCKED
), ordinary AS MATERIALIZED (
    SELECT id, token, worker, last_retry FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NULL AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND next_retry >= coalesce(%(floor)s::timestamptz, '-infinity')
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()) OR {unanswered} OR {ended})
       AND lost_count + (token IS NOT NULL)::integer < 2 AND NOT %(suspects)s::boolean
     ORDER BY next_retry, id LIMIT %(batch)s - (SELECT places FROM sure) - (SELECT count(*) FROM kept)
       FOR NO KEY UPDATE SKIP LOCKED
), retried AS MATERIALIZED (
    SELECT id, token, worker, last_retry FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NOT NULL AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND next_retry >= coalesce(%(floor_retried)s::timestamptz, '-infinity')
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()) OR {unanswered} OR {ended})
       AND lost_count + (token IS NOT NULL)::integer < 2 AND NOT %(suspects)s::boolean
     ORDER BY next_retry, id LIMIT %(batch)s - (SELECT places FROM sure) - (SELECT count(*) FROM ordinary)
       FOR NO KEY UPDATE SKIP LOCKED
), bulk AS MATERIALIZED (
    SELECT id, token, worker, last_retry FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority < 0 AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND next_retry >= coalesce(%(floor_bulk)s::timestamptz, '-infinity')
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()) OR {unanswered} OR {ended})
       AND lost_count + (token IS NOT NULL)::integer < 2 AND NOT %(suspects)s::boolean
     ORDER BY next_retry, id LIMIT %(batch)s
       FOR NO KEY UPDATE SKIP LOCKED
), suspect AS MATERIALIZED (
    SELECT id, token, worker, last_retry FROM pillarbox.queue
     WHERE status = 'DELIVER' AND lost_count > 0 AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()) OR {unanswered} OR {ended})
       AND lost_count + (token IS NOT NULL)::integer >= 2 AND %(suspects)s::boolean
     ORDER BY sign(priority) DESC, next_retry, id LIMIT %(batch)s
       FOR NO KEY UPDATE SKIP LOCKED
), due AS MATERIALIZED (
    SELECT id AS due_id, CASE WHEN NOT {unanswered} THEN token END AS lost_token, worker AS lost_worker, last_retry AS lost_since
      FROM (SELECT * FROM ordinary UNION ALL SELECT * FROM retried UNION ALL SELECT * FROM urgent UNION ALL SELECT * FROM bulk
            UNION ALL SELECT * FROM suspect) AS classes
     LIMIT %(batch)s
), taken AS (
    UPDATE pillarbox.queue q
       SET token = %(token)s::bigint, worker = %(worker)s, retry_count = q.retry_count + (NOT {unanswered})::integer,
           last_retry = coalesce(%(now)s::timestamptz, now()), lease_until = coalesce(%(now)s::timestamptz, now()) + %(lease)s,
           lost_count = q.lost_count + (q.token IS NOT NULL AND NOT {unanswered})::integer
     WHERE q.status = 'DELIVER' AND ({where}) AND q.id = ANY(ARRAY(SELECT due_id FROM due))
    RETURNING q.id, q.messages__id, q.actionid, q.ts, q.senderlocalpart, q.senderdomain, q.recipientlocalpart, q.recipientdomain,
              q.size, q.metadata->>'_partid' AS partid, q.transportid, q.jobid, q.priority, q.retry_count, q.next_retry, q.token,
              q.last_error IS NOT NULL AS tried_before,
              coalesce(q.last_error ~ '^(waiting: .* is left alone: )?(cannot log in: |53[0458] |503 5\.7\.|[45]\d\d [45]\.7\.(8|9|1[0-4]) )| \(our login was refused before\)$', false) AS login_refused,
              CASE WHEN jsonb_typeof(q.metadata) = 'object' THEN nullif(q.metadata - '_partid', '{}') END AS said,
              q.noticed IS NOT NULL AS noticed, q.tableoid AS leaf
), overdue AS MATERIALIZED (
    SELECT * FROM due WHERE lost_token IS NOT NULL
), lost AS (
    INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, partid, transportid, jobid,
                                    senderdomain, recipientdomain, size, outcome, scope, uncertain, duration)
    SELECT coalesce(%(now)s::timestamptz, now()), id, messages__id, retry_count - 1, lost_token, lost_worker, partid, transportid, jobid,
           senderdomain, recipientdomain, size, 'lease_expired', 'us', true, coalesce(%(now)s::timestamptz, now()) - lost_since
      FROM taken JOIN overdue ON due_id = id
)
SELECT id, messages__id, actionid, ts, senderlocalpart, senderdomain, recipientlocalpart, recipientdomain, size, partid,
       transportid, jobid, priority, retry_count, next_retry, token, said, tried_before, login_refused, noticed, leaf,
       (SELECT lost_token FROM overdue WHERE due_id = id) AS lost_token,
       coalesce(%(now)s::timestamptz, now()) AS claimed_at, (SELECT last_value FROM pillarbox.queue_id_seq) AS newest
  FROM taken
 ORDER BY sign(priority) DESC, next_retry, id

-- name: claim_extend_if_ours
-- Heartbeat: the leases of recipients in hand start anew; returns those that are still ours, by id and token, and whether each
-- lease did.
--
-- A row that somebody else has locked (an operator in the middle of a hold) stays ours for as long as its lease says, but is
-- passed over: waiting for it would let all the other leases run out.
-- {among} says in which partitions they are looked for (queued/claiming/leaves.py). generate_series: see
-- result_record_if_claimed, here as in the statements below.
WITH hand AS (
    SELECT id, message, token
      FROM ROWS FROM (unnest(%(ids)s::bigint[], %(messages)s::uuid[], %(tokens)s::bigint[]), generate_series(1, cardinality(%(ids)s::bigint[])))
           AS h(id, message, token, number)
), free AS MATERIALIZED (
    SELECT q.id, q.token FROM pillarbox.queue q JOIN hand h ON h.id = q.id AND (h.message = q.messages__id) IS TRUE AND h.token = q.token
     WHERE q.id = ANY(%(ids)s::bigint[]) AND {among}
     ORDER BY q.id
       FOR NO KEY UPDATE OF q SKIP LOCKED
), extended AS (
    UPDATE pillarbox.queue q
       SET lease_until = coalesce(%(now)s::timestamptz, now()) + %(lease)s
      FROM hand h
     WHERE q.id = ANY(ARRAY(SELECT f.id FROM free f)) AND {among} AND q.id = h.id AND q.token = h.token
    RETURNING q.id, q.token
)
SELECT q.id, q.token, (q.id, q.token) IN (SELECT e.id, e.token FROM extended e) AS extended
  FROM pillarbox.queue q JOIN hand h ON h.id = q.id AND (h.message = q.messages__id) IS TRUE AND h.token = q.token
 WHERE q.id = ANY(%(ids)s::bigint[]) AND {among}

-- name: claim_next_due
-- Seconds until the earliest recipient of this worker's partitions that waits for its time is due; NULL when none waits.
-- One look at the lower end of each class's index.
SELECT extract(epoch FROM min(earliest) - coalesce(%(now)s::timestamptz, now())) AS seconds FROM (
    SELECT min(next_retry) AS earliest FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority > 0 AND ({where}) AND next_retry > coalesce(%(now)s::timestamptz, now())
    UNION ALL
    SELECT min(next_retry) FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NULL AND ({where}) AND next_retry > coalesce(%(now)s::timestamptz, now())
    UNION ALL
    SELECT min(next_retry) FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NOT NULL AND ({where}) AND next_retry > coalesce(%(now)s::timestamptz, now())
    UNION ALL
    SELECT min(next_retry) FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority < 0 AND ({where}) AND next_retry > coalesce(%(now)s::timestamptz, now())
) AS classes

-- name: claim_park_if_ours
-- Parks claimed recipients that cannot be started soon: the claim is as if it had not been, and each is due again after its
-- own wait; returns those that were ours and are parked, by id and token. `last_error` says what is waited for, unless a try
-- has left its own.
--
-- A row that somebody else has locked is passed over; the caller comes again.
-- {among} says in which partitions they are looked for (queued/claiming/leaves.py).
WITH hand AS (
    SELECT id, message, token, seconds, reason
      FROM ROWS FROM (unnest(%(ids)s::bigint[], %(messages)s::uuid[], %(tokens)s::bigint[], %(seconds)s::float8[], %(reasons)s::text[]),
                      generate_series(1, cardinality(%(ids)s::bigint[]))) AS h(id, message, token, seconds, reason, number)
), free AS MATERIALIZED (
    SELECT q.id, q.token FROM pillarbox.queue q JOIN hand h ON h.id = q.id AND (h.message = q.messages__id) IS TRUE AND h.token = q.token
     WHERE q.id = ANY(%(ids)s::bigint[]) AND {among}
     ORDER BY q.id
       FOR NO KEY UPDATE OF q SKIP LOCKED
)
UPDATE pillarbox.queue q
   SET token = NULL, worker = NULL, lease_until = NULL, retry_count = q.retry_count - 1,
       next_retry = coalesce(%(now)s::timestamptz, now()) + make_interval(secs => h.seconds),
       last_error = CASE WHEN q.last_error IS NULL OR q.last_error LIKE 'waiting: %%' THEN 'waiting: ' || h.reason ELSE q.last_error END
  FROM hand h
 WHERE q.id = ANY(ARRAY(SELECT f.id FROM free f)) AND {among} AND q.id = h.id AND q.token = h.token
RETURNING q.id, h.token

-- name: claim_probe
-- Lets PostgreSQL itself read the worker's condition: an unknown column, a syntax error or a value of the wrong type shows
-- here, before anything is started.
SELECT FROM pillarbox.queue WHERE status = 'DELIVER' AND ({where}) LIMIT 0

-- name: claim_release_if_ours
-- Gives claimed recipients back untried, as if the claim had not been: the next worker may take them at once. Returns those
-- that were ours, by id and token.
--
-- {among} says in which partitions they are looked for (queued/claiming/leaves.py).
UPDATE pillarbox.queue q
   SET token = NULL, worker = NULL, lease_until = NULL, retry_count = q.retry_count - 1
  FROM ROWS FROM (unnest(%(ids)s::bigint[], %(messages)s::uuid[], %(tokens)s::bigint[]), generate_series(1, cardinality(%(ids)s::bigint[])))
       AS h(id, message, token, number)
 WHERE q.id = ANY(%(ids)s::bigint[]) AND {among} AND q.id = h.id AND (q.messages__id = h.message) IS TRUE AND q.token = h.token
RETURNING q.id, h.token

-- name: dry_run_due
-- The first `most` recipients a claim would take next, in its order and with its columns, and the part of their content that
-- has the header.
--
-- {where} is the worker's own condition. It reads only: no lock, no token, nothing counted. Each class is one scan of its
-- index, as in claim.sql.
WITH urgent AS MATERIALIZED (
    SELECT id AS due_id FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority > 0 AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()))
     ORDER BY next_retry, id LIMIT %(most)s
), fresh AS MATERIALIZED (
    SELECT id AS due_id FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NULL AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()))
     ORDER BY next_retry, id LIMIT %(most)s
), retried AS MATERIALIZED (
    SELECT id AS due_id FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NOT NULL AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()))
     ORDER BY next_retry, id LIMIT %(most)s
), bulk AS MATERIALIZED (
    SELECT id AS due_id FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority < 0 AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()))
     ORDER BY next_retry, id LIMIT %(most)s
)
SELECT q.id, q.messages__id, q.actionid, q.ts, q.senderlocalpart, q.senderdomain, q.recipientlocalpart, q.recipientdomain, q.size,
       q.metadata->>'_partid' AS partid, q.transportid, q.jobid, q.priority, q.retry_count + 1 AS retry_count, q.next_retry,
       0 AS token, CASE WHEN jsonb_typeof(q.metadata) = 'object' THEN nullif(q.metadata - '_partid', '{}') END AS said,
       q.noticed IS NOT NULL AS noticed, false AS login_refused, q.tableoid AS leaf,
       coalesce(%(now)s::timestamptz, now()) AS claimed_at,
       substr(m.content, 1, %(octets)s) AS head
  FROM (SELECT * FROM urgent UNION ALL SELECT * FROM fresh UNION ALL SELECT * FROM retried UNION ALL SELECT * FROM bulk) AS due
  JOIN pillarbox.queue q ON q.id = due_id AND ({where})
  LEFT JOIN pillarbox.messages m ON m.id = q.messages__id
 ORDER BY sign(q.priority) DESC, q.next_retry, q.id
 LIMIT %(most)s
