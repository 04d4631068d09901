-- One round of maintenance, step by step.

-- name: maintain_clock
-- After the server's clock was put back, puts back the times of up to `batch` recipients; `more` is whether others are left.
SELECT moved, more, back FROM pillarbox.maintain_clock(%(batch)s)

-- name: maintain_elect
-- Whether this worker is the one that maintains, for the length of the lease; asked again, it is renewed.
SELECT pillarbox.lease_take('maintain', %(worker)s, %(lease)s), set_config('synchronous_commit', 'off', true)

-- name: maintain_finish
-- Finishes what an operator set to DELETE or BOUNCE, and says how many with which result.
SELECT result, recipients FROM pillarbox.maintain_finish(%(worker)s, %(batch)s)

-- name: maintain_forget_keys
-- Forgets idempotency keys older than `keep`, at most `batch`, and says how many.
SELECT pillarbox.maintain_forget_keys(%(keep)s, %(batch)s)

-- name: maintain_forget_notices
-- Forgets what of notices and suppressions is past its time.
SELECT pillarbox.maintain_forget_notices(%(keep)s, %(batch)s)

-- name: maintain_history_drop
-- Drops the oldest day of attempts past `keep`, and of the archive past `keep` and `find`.
SELECT pillarbox.maintain_history_drop(%(keep)s::interval, %(find)s::interval)

-- name: maintain_hold_poison
-- Holds what made its worker lose the claim too often in a row.
SELECT pillarbox.maintain_hold_poison(%(poison)s, %(batch)s)

-- name: maintain_leaf_after
-- The leaf behind this one, by name.
SELECT (SELECT leaf FROM pillarbox.maintain_leaves(%(after)s, 1) AS leaf) AS leaf

-- name: maintain_patience
-- For this transaction: no statement takes longer than so many milliseconds.
SELECT set_config('statement_timeout', %(milliseconds)s::text, true)

-- name: maintain_renotify
-- Wakes the workers of partitions where mail is overdue, in `leaves` leaves behind `after`; with `recent`, where it has been
-- for five minutes at most.
SELECT woken AS found, reached
  FROM pillarbox.maintain_renotify_since(%(overdue)s::interval, %(batch)s,
           CASE WHEN %(recent)s THEN now() - %(overdue)s::interval - interval '5 minutes' ELSE '-infinity' END,
           %(after)s, %(leaves)s)

-- name: maintain_resign
-- Lets another worker maintain.
SELECT pillarbox.lease_give('maintain', %(worker)s), set_config('synchronous_commit', 'off', true)

-- name: maintain_sweep
-- Collects bodies without recipients, at most `batch`, from the notes of `since` on; those of dead letters stay for `keep`.
-- Without `since` from the oldest note on, or, where that is not `full`, from those of an hour ago.
SELECT looked, swept, nullif(reached, '-infinity') AS reached
  FROM pillarbox.maintain_sweep_since(%(grace)s::interval, %(keep)s::interval, %(batch)s,
           coalesce(%(since)s::timestamptz, CASE WHEN %(full)s THEN '-infinity'
                                                 ELSE now() - %(grace)s::interval - interval '1 hour' END))

-- name: maintain_unserved
-- Notes mail that is overdue in `leaves` leaves behind `after`, `most` recipients of each leaf and partition, for every worker to
-- withdraw what it serves; with `recent`, what has been overdue for five minutes at most.
SELECT noted AS found, reached
  FROM pillarbox.maintain_unserved_since(%(overdue)s::interval, %(most)s,
           CASE WHEN %(recent)s THEN now() - %(overdue)s::interval - interval '5 minutes' ELSE '-infinity' END,
           %(after)s, %(leaves)s)

-- name: maintain_vacuum
-- Vacuums one leaf now; a leaf that another session vacuums, or has locked, is left to it.
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) pillarbox.{table}

-- name: maintain_vacuum_wanted
-- The leaves with more dead rows than `dead`, the worst first, and whether this role may vacuum them: its own, those of its
-- own database, and from PostgreSQL 17 on those it may MAINTAIN (VACUUM's own rule).
SELECT v.leaf, pg_has_role(d.datdba, 'USAGE') OR CASE WHEN current_setting('server_version_num')::integer >= 170000
               THEN has_table_privilege(c.oid, 'MAINTAIN') ELSE pg_has_role(c.relowner, 'USAGE') END AS allowed
  FROM pillarbox.maintain_vacuum v
  JOIN pg_class c ON c.oid = to_regclass(format('pillarbox.%%I', v.leaf))
  JOIN pg_database d ON d.datname = current_database()
 WHERE v.dead >= %(dead)s
 ORDER BY v.dead DESC
