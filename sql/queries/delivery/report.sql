-- The tables in which a report is kept for the console.

-- name: report_alarms_add
-- Keeps the alarms of a report that no report had before.
INSERT INTO pillarbox.report_alarms (kind, subject, at, value, usual, score)
SELECT a.kind, a.subject, a.at, a.value, a.usual, a.score
  FROM jsonb_to_recordset(%(alarms)s::jsonb) AS a(kind text, subject text, at timestamptz, value float8, usual float8, score float8)
ON CONFLICT (kind, subject, at) DO NOTHING
RETURNING kind, subject, at

-- name: report_known
-- To which of these addresses, by their places from 1, we have sent one of these messages, or are at it. The lock that this
-- takes is all it writes, and waits for no disk: anybody may send reports, and they are read one after another.
SELECT pillarbox.report_known(%(messages)s::uuid[], %(localparts)s::text[], %(domains)s::text[]) AS places,
       set_config('synchronous_commit', 'off', true)

-- name: report_milestone
-- Keeps what a report says of the recipients of these messages at an address.
SELECT pillarbox.milestone_reported(%(kind)s, %(messages)s::uuid[], %(localpart)s, %(domain)s, %(evidence)s, %(reason)s)

-- name: report_minutes_batch
-- Takes the turn of a batch, which has the row until the transaction ends: `stored` says that it was stored before, no row that
-- a later one was.
INSERT INTO pillarbox.report_streams AS s (stream, batch) VALUES (%(stream)s, %(batch)s)
ON CONFLICT (stream) DO UPDATE SET batch = excluded.batch, before = s.batch, at = now() WHERE s.batch <= excluded.batch
RETURNING coalesce(s.before = s.batch, false) AS stored

-- name: report_minutes_begin
-- Removes the figures from a minute on, which a new stream counts itself, and what is known of streams of long ago.
WITH gone AS (DELETE FROM pillarbox.report_streams WHERE at < now() - interval '30 days')
DELETE FROM pillarbox.report_minutes WHERE minute >= %(since)s::timestamptz

-- name: report_minutes_store
-- Puts figures in the place of those of the same minute and outcome.
INSERT INTO pillarbox.report_minutes (minute, outcome, attempts, seconds)
SELECT minute, outcome, attempts, seconds
  FROM jsonb_to_recordset(%(figures)s::jsonb) AS f(minute timestamptz, outcome text, attempts bigint, seconds float8)
ON CONFLICT (minute, outcome) DO UPDATE SET attempts = excluded.attempts, seconds = excluded.seconds
RETURNING minute

-- name: report_only_recipient
-- The one recipient of a message that has no other, else NULL.
SELECT pillarbox.report_only_recipient(%(message)s) AS address, set_config('synchronous_commit', 'off', true)

-- name: report_periods
-- The periods of which there are reports, the latest first.
SELECT since, until, max(made) AS made FROM pillarbox.reports GROUP BY since, until ORDER BY until DESC, since DESC LIMIT %(limit)s::bigint

-- name: report_sections
-- The sections of the report of a period.
SELECT section, made, origin, more, columns, rows FROM pillarbox.reports WHERE since = %(since)s AND until = %(until)s ORDER BY section

-- name: report_store
-- Keeps the sections of a report, in place of those of the same period.
INSERT INTO pillarbox.reports (since, until, section, made, origin, more, columns, rows)
SELECT %(since)s, %(until)s, s.section, %(made)s, %(origin)s, s.more, s.columns, s.rows
  FROM jsonb_to_recordset(%(sections)s::jsonb) AS s(section text, more boolean, columns jsonb, rows jsonb)
ON CONFLICT (since, until, section) DO UPDATE
   SET made = excluded.made, origin = excluded.origin, more = excluded.more, columns = excluded.columns, rows = excluded.rows
RETURNING section
