-- Notes that a command came to its end, and that what it undid is undone.
SELECT pillarbox.audit_finish(%(id)s::bigint)
