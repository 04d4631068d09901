-- Whether a wake-up for this partition id can concern a worker with this condition. Columns a notification does not tell
-- are NULL, so anything but a plain false counts as yes. An empty id stands for mail that has none.
SELECT ({where}) IS NOT FALSE
  FROM jsonb_populate_record(NULL::pillarbox.queue, jsonb_build_object('metadata', jsonb_build_object('_partid', nullif(%(partid)s::text, ''))))
