-- Locks what is known of a quarantine's digest until the transaction ends; `due` says that the last one is of an earlier
-- period, `period` when this one began.
INSERT INTO pillarbox.digests AS d (quarantine) VALUES (%(quarantine)s)
    ON CONFLICT (quarantine) DO UPDATE SET quarantine = excluded.quarantine
RETURNING d.sent, now() AS now, date_bin(%(every)s::interval, now(), '2001-01-01 00:00:00+00') AS period,
          coalesce(date_bin(%(every)s::interval, d.sent, '2001-01-01 00:00:00+00') < date_bin(%(every)s::interval, now(), '2001-01-01 00:00:00+00'), true) AS due
