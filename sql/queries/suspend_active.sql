-- The suspends in force, with the seconds until each ends; NULL for those that end when they are removed.
SELECT id, selection, reason, who, made, expires,
       extract(epoch FROM expires - coalesce(%(now)s::timestamptz, now()))::double precision AS seconds
  FROM pillarbox.suspends
 WHERE expires IS NULL OR expires > coalesce(%(now)s::timestamptz, now())
 ORDER BY id
