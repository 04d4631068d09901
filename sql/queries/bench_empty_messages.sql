-- The bodies that no recipient needs any more, all of them at once.
WITH gone AS (DELETE FROM pillarbox.released RETURNING messages__id)
DELETE FROM pillarbox.messages USING gone WHERE id = messages__id
