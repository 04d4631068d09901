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
