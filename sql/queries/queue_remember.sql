-- Keeps what recipients are before a command changes them, so that it can be undone and traced.
SELECT pillarbox.audit_remember(%(audit)s::bigint, %(ids)s::bigint[])
