-- Suppresses addresses or domains by an operator's word, whatever was known of them, and says how many.
WITH added AS (
    INSERT INTO pillarbox.suppressions AS s (target, reason, source, since, expires)
    SELECT DISTINCT t, %(reason)s, 'operator', coalesce(%(now)s::timestamptz, now()), coalesce(%(now)s::timestamptz, now()) + %(keep)s::interval
      FROM unnest(%(targets)s::text[]) AS t
    ON CONFLICT (target) DO UPDATE SET reason = excluded.reason, source = 'operator', since = excluded.since,
                                       expires = excluded.expires, active = true
    RETURNING 1
)
SELECT count(*) AS added FROM added
