-- Adds what a batch did to the audit row of its command, in the batch's own transaction.
UPDATE pillarbox.audit SET done = done + %(done)s::bigint, skipped = skipped + %(skipped)s::bigint WHERE id = %(id)s::bigint
