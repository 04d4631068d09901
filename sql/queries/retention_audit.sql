-- How many commands may be forgotten, the oldest of them, and whether whoever asks may forget them.
SELECT count(*) AS commands, min(ts) AS oldest, has_table_privilege('pillarbox.audit', 'DELETE') AS allowed
  FROM pillarbox.audit_older(%(before)s::timestamptz)
