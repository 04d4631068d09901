-- Lets these notices, which PostgreSQL refused at `at`, wait until `due`; once it has for long enough, they are forgotten.
UPDATE pillarbox.notices SET due = %(due)s, refused = coalesce(refused, %(at)s) WHERE id = ANY (%(ids)s::bigint[])
