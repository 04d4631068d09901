-- Puts figures in the place of those of the same minute and outcome.
INSERT INTO pillarbox.report_minutes (minute, outcome, attempts, seconds)
SELECT minute, outcome, attempts, seconds
  FROM jsonb_to_recordset(%(figures)s::jsonb) AS f(minute timestamptz, outcome text, attempts bigint, seconds float8)
ON CONFLICT (minute, outcome) DO UPDATE SET attempts = excluded.attempts, seconds = excluded.seconds
RETURNING minute
