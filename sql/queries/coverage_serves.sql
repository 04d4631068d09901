-- What a worker's condition says of each partition id, with every column unknown but the id and the status: true, false,
-- or NULL where it depends on the unknown.
SELECT metadata->>'_partid' AS partid, ({where}) AS serves
  FROM (SELECT (jsonb_populate_record(NULL::pillarbox.queue, jsonb_build_object(
                    'status', 'DELIVER', 'metadata', CASE WHEN id IS NOT NULL THEN jsonb_build_object('_partid', id) END))).*
          FROM unnest(%(partids)s::text[]) AS p(id)) AS queue
