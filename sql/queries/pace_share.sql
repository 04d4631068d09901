-- Takes a portion of a limit that workers share, and gives back what is not needed.
SELECT * FROM pillarbox.pace_share(%(key)s, %(worker)s, %(now)s::timestamptz, %(rate)s::double precision, %(burst)s::integer,
                                   %(give)s::integer, %(want)s::integer, %(most)s::integer, %(keep)s::integer,
                                   %(more)s::integer, %(lease)s)
