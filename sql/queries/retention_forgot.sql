-- Adds to the audit row of a retention how many commands it forgot.
UPDATE pillarbox.audit SET done = done + %(commands)s::bigint WHERE id = %(id)s::bigint
