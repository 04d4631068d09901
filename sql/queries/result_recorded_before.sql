-- Which of these results are recorded already, by a statement whose answer was lost on its way, and whether the claim was
-- still ours then: who took it over has written an attempt of its own for the same token.
SELECT r.id, r.token, NOT bool_or(a.outcome = 'lease_expired') AS ours
  FROM unnest(%(ids)s::bigint[], %(messages)s::uuid[], %(tokens)s::bigint[]) AS r(id, messages__id, token)
  JOIN pillarbox.attempts a ON a.messages__id = r.messages__id AND a.queue__id = r.id AND a.token = r.token AND a.ts >= %(since)s
 GROUP BY r.id, r.token
HAVING bool_or(a.outcome <> 'lease_expired')
