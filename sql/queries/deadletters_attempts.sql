-- Every try at one recipient, the first first.
SELECT ts, retry_count, worker, remote, outcome, scope, uncertain, reply_code, reply_text, tls, source,
       extract(epoch FROM duration)::float AS seconds
  FROM pillarbox.attempts
 WHERE messages__id = %(message)s AND queue__id = %(id)s
 ORDER BY ts, id
