-- Addresses and domains that get no mail.

-- name: suppression_add
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

-- name: suppression_among
-- Which of these addresses and domains are suppressed, and why; `anybody` says in every row, and there is always one, whether
-- the table suppresses anybody at all.
--
-- One that was erased is known by its hash; hashes are computed only where there are such.
SELECT a.anybody, s.target, s.reason
  FROM (SELECT EXISTS (SELECT FROM pillarbox.suppressions WHERE active) AS anybody,
               EXISTS (SELECT FROM pillarbox.suppressions WHERE erased) AS erased) AS a
  LEFT JOIN LATERAL (
        SELECT t.target, s.reason
          FROM unnest(%(targets)s::text[], CASE WHEN a.erased THEN ARRAY(SELECT pillarbox.address_hash(t) FROM unnest(%(targets)s::text[]) AS t) END)
               AS t(target, hash)
          JOIN pillarbox.suppressions s ON s.target = ANY (ARRAY[t.target, t.hash])
         WHERE s.active AND (s.expires IS NULL OR s.expires > coalesce(%(now)s::timestamptz, now()))) AS s ON true

-- name: suppression_list
-- Suppressions that hold, and with `noted` also those of which there were not enough failures; by target, after one.
SELECT target, reason, source, since, expires, evidence::text AS evidence, count, active FROM pillarbox.suppressions
 WHERE (active OR %(noted)s) AND (expires IS NULL OR expires > coalesce(%(now)s::timestamptz, now())) AND target > %(after)s
 ORDER BY target LIMIT %(batch)s

-- name: suppression_listed
-- Whether an address or its domain is suppressed, for policy at RCPT.
SELECT 1 FROM pillarbox.suppressions
 WHERE target IN (%(value)s::text, substring(%(value)s::text from '@([^@]*)$'),
                  (SELECT pillarbox.address_hash(%(value)s::text) WHERE EXISTS (SELECT FROM pillarbox.suppressions e WHERE e.erased)))
   AND active AND (expires IS NULL OR expires > now())

-- name: suppression_note
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

-- name: suppression_remove
-- Ends the suppression of an address or a domain; a row says that there was one.
DELETE FROM pillarbox.suppressions WHERE target IN (%(target)s::text, pillarbox.address_hash(%(target)s::text)) RETURNING target
