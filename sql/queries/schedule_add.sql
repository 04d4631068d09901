-- Adds a schedule; no row when there is one by this id already.
INSERT INTO pillarbox.schedules (id, cron, timezone, sender, recipients, content, transportid, priority, smtputf8, next_at)
VALUES (%(id)s, %(cron)s, %(timezone)s, %(sender)s, %(recipients)s, %(content)s, %(transportid)s, %(priority)s, %(smtputf8)s,
        %(next_at)s)
ON CONFLICT (id) DO NOTHING
RETURNING id
