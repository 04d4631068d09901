-- Notes that a command came to its end, and that what it undid is undone.
WITH finished AS (
    UPDATE pillarbox.audit SET finished = now() WHERE id = %(id)s::bigint RETURNING undoes
)
UPDATE pillarbox.audit SET undone = now() WHERE id = (SELECT undoes FROM finished)
