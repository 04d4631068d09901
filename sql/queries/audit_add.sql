-- Adds what a batch did to the audit row of its command, in the batch's own transaction; how many it changed.
SELECT pillarbox.audit_add(%(id)s::bigint, %(ids)s::bigint[], %(seen)s::bigint) AS changed
