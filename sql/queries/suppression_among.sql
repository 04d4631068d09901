-- Which of these addresses and domains are suppressed, and why; `anybody` says in every row, and there is always one, whether
-- the table suppresses anybody at all.
SELECT a.anybody, s.target, s.reason
  FROM (SELECT EXISTS (SELECT FROM pillarbox.suppressions WHERE active) AS anybody) AS a
  LEFT JOIN pillarbox.suppressions s
    ON s.target = ANY (%(targets)s::text[]) AND s.active AND (s.expires IS NULL OR s.expires > coalesce(%(now)s::timestamptz, now()))
