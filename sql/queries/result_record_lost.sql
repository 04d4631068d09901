-- Records the attempts of results that came too late: the claim was another's by then, or the row is gone, but they were made.
INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, partid, transportid, jobid, senderdomain,
                                recipientdomain, size, remote, outcome, scope, uncertain, reply_code, reply_enhanced, reply_text, duration,
                                tls, source)
SELECT coalesce(%(now)s::timestamptz, now()), id, messages__id, retry_count, token, %(worker)s, partid, transportid, jobid, senderdomain,
       recipientdomain, size, remote, outcome, scope, uncertain, reply_code, reply_enhanced, reply_text, make_interval(secs => seconds),
       tls, source
  FROM unnest(%(id)s::bigint[], %(messages__id)s::uuid[], %(retry_count)s::integer[], %(token)s::bigint[], %(partid)s::text[],
              %(transportid)s::text[], %(jobid)s::text[], %(senderdomain)s::text[], %(recipientdomain)s::text[], %(size)s::integer[],
              %(remote)s::text[], %(outcome)s::text[], %(scope)s::text[], %(uncertain)s::boolean[], %(reply_code)s::integer[],
              %(reply_enhanced)s::text[], %(reply_text)s::text[], %(seconds)s::float8[], %(tls)s::text[], %(source)s::text[])
    AS r(id, messages__id, retry_count, token, partid, transportid, jobid, senderdomain, recipientdomain, size, remote, outcome, scope,
         uncertain, reply_code, reply_enhanced, reply_text, seconds, tls, source)
