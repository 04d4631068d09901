-- Notes one failure of an address and says whether it is suppressed now, and how often it failed. The same report counts once.
--
-- A hard failure suppresses at once, soft ones when there were enough within `window` of each other. What an operator has
-- said stays as it is.
INSERT INTO pillarbox.suppressions AS s (target, reason, source, since, expires, evidence, count, active)
VALUES (%(target)s, %(reason)s, %(source)s, %(now)s::timestamptz,
        %(now)s::timestamptz + CASE WHEN %(hard)s OR %(enough)s <= 1 THEN %(keep)s::interval ELSE %(window)s::interval END,
        %(evidence)s, 1, %(hard)s OR %(enough)s <= 1)
ON CONFLICT (target) DO UPDATE
   SET count = CASE WHEN s.evidence = excluded.evidence THEN s.count
                    WHEN s.expires < excluded.since AND s.source <> 'operator' THEN 1 ELSE s.count + 1 END,
       active = s.active AND (s.expires IS NULL OR s.expires > excluded.since) OR excluded.active
                OR (s.evidence IS DISTINCT FROM excluded.evidence AND s.expires >= excluded.since AND s.count + 1 >= %(enough)s),
       reason = CASE WHEN s.source = 'operator' THEN s.reason ELSE excluded.reason END,
       source = CASE WHEN s.source = 'operator' THEN s.source ELSE excluded.source END,
       expires = CASE WHEN s.active AND (s.expires IS NULL OR s.source = 'operator') THEN s.expires
                      WHEN excluded.active OR s.active OR (s.evidence IS DISTINCT FROM excluded.evidence AND s.count + 1 >= %(enough)s)
                      THEN excluded.since + %(keep)s::interval
                      ELSE excluded.expires END,
       evidence = excluded.evidence
RETURNING s.active, s.count
