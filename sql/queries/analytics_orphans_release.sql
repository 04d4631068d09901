-- Gives bodies that no recipient needs to the sweep, after a second look.
SELECT id::text FROM pillarbox.orphans_release(%(ids)s) AS released(id)
