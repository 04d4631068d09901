-- Notes that a command begins to act, and returns the number of its audit row.
SELECT pillarbox.audit_begin(%(operator)s, %(verb)s, %(condition)s, %(argument)s::jsonb, %(reason)s, %(undoes)s::bigint, %(wanted)s::bigint) AS id
