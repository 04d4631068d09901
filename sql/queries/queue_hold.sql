-- Puts locked recipients on hold, in a quarantine and with a reason where one is given.
UPDATE pillarbox.queue q
   SET status = 'HOLD',
       metadata = coalesce(q.metadata, '{}') || jsonb_strip_nulls(jsonb_build_object('_quarantineid', %(quarantine)s::text, '_holdreason', %(reason)s::text))
 WHERE q.id = ANY (%(ids)s::bigint[]) AND q.status = 'DELIVER'
RETURNING q.id, NULL AS partid
