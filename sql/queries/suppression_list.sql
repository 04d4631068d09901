-- Suppressions that hold, and with `noted` also those of which there were not enough failures; by target, after one.
SELECT target, reason, source, since, expires, evidence::text AS evidence, count, active FROM pillarbox.suppressions
 WHERE (active OR %(noted)s) AND (expires IS NULL OR expires > coalesce(%(now)s::timestamptz, now())) AND target > %(after)s
 ORDER BY target LIMIT %(batch)s
