-- Which of the days from today to `ahead` days on have no partition of attempts or archive.
SELECT history || '_' || to_char(day, 'YYYYMMDD') AS missing, day - (now() AT TIME ZONE 'UTC')::date AS ahead
  FROM unnest(ARRAY['attempts', 'archive']) AS history,
       (SELECT (now() AT TIME ZONE 'UTC')::date + n AS day FROM generate_series(0, %(ahead)s) AS n) AS days
 WHERE NOT EXISTS (SELECT FROM pg_inherits
                    WHERE inhparent = to_regclass('pillarbox.' || history)
                      AND inhrelid = to_regclass(format('pillarbox.%%s_%%s', history, to_char(day, 'YYYYMMDD'))))
 ORDER BY day, history
