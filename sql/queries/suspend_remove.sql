-- Removes suspends by number; what they were about. `ids` NULL is all of them.
DELETE FROM pillarbox.suspends
 WHERE %(ids)s::bigint[] IS NULL OR id = ANY (%(ids)s::bigint[])
RETURNING id, selection, reason
