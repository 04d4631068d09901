-- Limits that workers share, warm-up of source addresses, and suspended destinations.

-- name: pace_forget
-- Forgets suspends, shares and limits that no longer matter; how many limits.
SELECT pillarbox.pace_forget()

-- name: pace_share
-- Takes portions of limits that workers share, and returns unused ones: a row for each key, in the order of the keys.
SELECT p.tokens, p.seconds, p.slots, p.starved
  FROM unnest(%(keys)s::text[], %(rates)s::double precision[], %(bursts)s::integer[], %(give)s::integer[], %(want)s::integer[],
              %(concurrencies)s::integer[], %(keep)s::integer[], %(more)s::integer[])
       WITH ORDINALITY AS w (key, rate, burst, give, want, most, keep, more, place)
 CROSS JOIN LATERAL pillarbox.pace_share(w.key, %(worker)s, w.rate, w.burst, w.give, w.want, w.most, w.keep, w.more, %(lease)s) AS p
 ORDER BY w.place

-- name: suspend_active
-- The suspends in force, with the seconds until each ends; NULL for those that end when they are removed.
SELECT id, selection, reason, who, made, expires,
       extract(epoch FROM expires - coalesce(%(now)s::timestamptz, now()))::double precision AS seconds
  FROM pillarbox.suspends
 WHERE expires IS NULL OR expires > coalesce(%(now)s::timestamptz, now())
 ORDER BY id

-- name: suspend_add
-- Suspends mail, or changes the reason and the end of a suspend; its number. Without `seconds` it lasts until it is removed.
INSERT INTO pillarbox.suspends AS s (selection, reason, who, made, expires)
VALUES (%(selection)s::jsonb, %(reason)s, coalesce(%(who)s::text, pillarbox.acting_for()), coalesce(%(now)s::timestamptz, now()),
        coalesce(%(now)s::timestamptz, now()) + make_interval(secs => %(seconds)s::double precision))
ON CONFLICT (selection, who) DO UPDATE SET reason = excluded.reason, made = excluded.made, expires = excluded.expires
RETURNING s.id, s.expires

-- name: suspends_add
-- The same for many, each with who suspended it, and with its seconds. No two are of one selection and by one.
INSERT INTO pillarbox.suspends AS s (selection, reason, who, made, expires)
SELECT w.selection::jsonb, w.reason, w.who, now(), now() + make_interval(secs => w.seconds)
  FROM unnest(%(selections)s::text[], %(reasons)s::text[], %(whos)s::text[], %(seconds)s::double precision[])
       AS w (selection, reason, who, seconds)
ON CONFLICT (selection, who) DO UPDATE SET reason = excluded.reason, made = excluded.made, expires = excluded.expires

-- name: suspends_in_force
-- The suspends that workers go by: the selection as text, so that one that is known already is not read again.
SELECT selection::text AS selection, reason, who,
       extract(epoch FROM expires - coalesce(%(now)s::timestamptz, now()))::double precision AS seconds
  FROM pillarbox.suspends
 WHERE expires IS NULL OR expires > coalesce(%(now)s::timestamptz, now())
 ORDER BY id

-- name: suspend_release
-- Makes mail due that was parked for a suspend that is gone: up to `batch` rows of this worker's partitions; how many.
-- A recipient that was never tried says in last_error why it waits; of those tried before, whose last_error is a server's, all
-- that are due within the longest time of parking come now. What fits is asked by the columns; site and source are none.
-- A selection may have hundreds of domains, so each row is compared with a list of them, which is made once; `below`: some
-- of them begin with a dot.
WITH parked AS MATERIALIZED (
    SELECT q.id FROM pillarbox.queue q
     WHERE q.status = 'DELIVER' AND ({where}) AND q.lease_until IS NULL
       AND q.next_retry > coalesce(%(now)s::timestamptz, now())
       AND q.next_retry <= coalesce(%(now)s::timestamptz, now()) + make_interval(secs => %(longest)s::double precision)
       AND (q.retry_count > 0 OR starts_with(q.last_error, %(reason)s))
       AND pillarbox.suspend_fits(%(selection)s::jsonb -> 'transport', q.transportid)
       AND (%(selection)s::jsonb -> 'destination' IS NULL
            OR pillarbox.lowered(q.recipientdomain) = ANY (ARRAY(
                   SELECT pillarbox.lowered(w) FROM jsonb_array_elements_text(%(selection)s::jsonb -> 'destination') AS w))
            OR (%(below)s AND pillarbox.suspend_fits(%(selection)s::jsonb -> 'destination', q.recipientdomain)))
       AND pillarbox.suspend_fits(%(selection)s::jsonb -> 'sender', q.senderdomain)
       AND pillarbox.suspend_fits(%(selection)s::jsonb -> 'tenant', q.metadata->>'tenant')
       AND pillarbox.suspend_fits(%(selection)s::jsonb -> 'jobid', q.jobid)
     LIMIT %(batch)s
       FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
    UPDATE pillarbox.queue q SET next_retry = coalesce(%(now)s::timestamptz, now())
      FROM parked p WHERE q.status = 'DELIVER' AND ({where}) AND q.id = p.id
    RETURNING coalesce(q.metadata->>'_partid', '') AS partid
), woken AS (
    SELECT pillarbox.notify_partition(partid) FROM (SELECT DISTINCT partid FROM moved) AS partids
)
SELECT (SELECT count(*) FROM moved) AS released, (SELECT count(*) FROM woken) AS partitions

-- name: suspend_remove
-- Removes suspends by number; what they were about. `ids` NULL is all of them.
DELETE FROM pillarbox.suspends
 WHERE %(ids)s::bigint[] IS NULL OR id = ANY (%(ids)s::bigint[])
RETURNING id, selection, reason

-- name: warmup_take
-- Grants a worker up to `portion` messages of what a source address may send on a day, and says how many; no row: none is left.
--
-- The row is locked while it is counted, so that all workers together are never granted more than `most`. Days long past go.
WITH past AS (
    DELETE FROM pillarbox.warmups WHERE source = %(source)s::inet AND day < %(day)s::date - 7
)
INSERT INTO pillarbox.warmups AS w (source, day, used, granted)
VALUES (%(source)s::inet, %(day)s::date, least(%(portion)s::integer, %(most)s::integer), least(%(portion)s::integer, %(most)s::integer))
ON CONFLICT (source, day) DO UPDATE
   SET granted = least(%(portion)s::integer, %(most)s::integer - w.used),
       used = w.used + least(%(portion)s::integer, %(most)s::integer - w.used)
 WHERE w.used < %(most)s::integer
RETURNING granted
