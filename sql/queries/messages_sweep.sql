-- Collects bodies whose last recipient left before the grace began, at most `batch`, oldest first; returns how many went.
-- The counter only proposes: the anti-join decides, so a miscount can keep a body too long but never lose one.
WITH orphaned AS MATERIALIZED (
    SELECT m.id FROM pillarbox.messages m
     WHERE m.released < coalesce(%(now)s::timestamptz, now()) - %(grace)s::interval
       AND NOT EXISTS (SELECT FROM pillarbox.queue q WHERE q.messages__id = m.id)
     ORDER BY m.released
     LIMIT %(batch)s
       FOR UPDATE OF m SKIP LOCKED
), gone AS (
    DELETE FROM pillarbox.messages m USING orphaned WHERE m.id = orphaned.id AND m.released IS NOT NULL
    RETURNING m.id
)
SELECT count(*) FROM gone
