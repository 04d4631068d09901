-- Every schedule without its content, enabled ones first, in the order they come.
SELECT id, cron, timezone, sender, recipients, length(content) AS size, transportid, priority, next_at, last_at,
       last_message::text, enabled, made, error
  FROM pillarbox.schedules
 ORDER BY NOT enabled, next_at, id
