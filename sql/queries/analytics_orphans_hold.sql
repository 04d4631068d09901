-- Holds recipients that have no body, after a second look.
SELECT id FROM pillarbox.orphans_hold(%(ids)s) AS held(id)
