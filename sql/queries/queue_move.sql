-- Moves locked recipients to another transport, another partition, or both; what is not given stays.
UPDATE pillarbox.queue q
   SET transportid = coalesce(%(transport)s::text, q.transportid),
       metadata = coalesce(q.metadata, '{}') || jsonb_strip_nulls(jsonb_build_object('_partid', %(partition)s::text))
 WHERE q.id = ANY (%(ids)s::bigint[])
RETURNING q.id, q.metadata->>'_partid' AS partid
