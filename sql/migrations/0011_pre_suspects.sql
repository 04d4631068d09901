-- What claims have lost is found without reading what is merely due: claims look for it once a poll (queued/claiming/claim.py).
SET LOCAL search_path = pillarbox;

-- Nearly always empty. A claim changes lost_count only of a row that it takes over from a lost one, and a result only of
-- a row that was lost before; so all other claims and results stay HOT, which `token` in the condition would end.
CREATE INDEX queue_suspect ON queue (next_retry, id) WHERE status = 'DELIVER' AND lost_count > 0;
