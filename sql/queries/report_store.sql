-- Keeps the sections of a report, in place of those of the same period.
INSERT INTO pillarbox.reports (since, until, section, made, origin, more, columns, rows)
SELECT %(since)s, %(until)s, s.section, %(made)s, %(origin)s, s.more, s.columns, s.rows
  FROM jsonb_to_recordset(%(sections)s::jsonb) AS s(section text, more boolean, columns jsonb, rows jsonb)
ON CONFLICT (since, until, section) DO UPDATE
   SET made = excluded.made, origin = excluded.origin, more = excluded.more, columns = excluded.columns, rows = excluded.rows
RETURNING section
