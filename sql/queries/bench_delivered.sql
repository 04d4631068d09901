-- What was queued since then and is delivered: when each recipient was queued, and when its result was recorded.
SELECT ts, finished FROM pillarbox.archive WHERE finished >= %(since)s AND ts >= %(since)s AND result = 'success'
