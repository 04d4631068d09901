-- Suspends mail, or says anew why and until when; its number. Without `seconds` it lasts until it is removed.
INSERT INTO pillarbox.suspends AS s (selection, reason, who, made, expires)
VALUES (%(selection)s::jsonb, %(reason)s, coalesce(%(who)s::text, current_user), coalesce(%(now)s::timestamptz, now()),
        coalesce(%(now)s::timestamptz, now()) + make_interval(secs => %(seconds)s::double precision))
ON CONFLICT (selection, who) DO UPDATE SET reason = excluded.reason, made = excluded.made, expires = excluded.expires
RETURNING s.id, s.expires
