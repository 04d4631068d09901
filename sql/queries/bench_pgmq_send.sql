-- Sends `batch` messages with this body in one call.
SELECT count(*) FROM pgmq.send_batch('bench', (SELECT array_agg(jsonb_build_object('body', %(body)s::text)) FROM generate_series(1, %(batch)s)))
