-- Holds those of these claimed recipients that have no body, with the reason, and returns their ids.
SELECT id FROM pillarbox.hold_missing_body(coalesce(%(now)s::timestamptz, now()), %(ids)s, %(tokens)s) AS held(id)
