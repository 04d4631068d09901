-- Lets these notices, which could not be sent, wait until `due`.
UPDATE pillarbox.notices SET due = %(due)s WHERE id = ANY (%(ids)s::bigint[])
