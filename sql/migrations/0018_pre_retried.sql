-- Fresh mail is found without reading what waits to be tried again, and the other way round: a million retries that fall due
-- at once are older than whatever comes after them, and one index in the order of time would put them all in front of it.
SET LOCAL search_path = pillarbox;

-- `last_error` tells the two apart and nothing new is written for it: a result or a parking that sets it moves `next_retry`
-- as well, so it is no HOT update anyway, and claims leave it alone. A row is in one of the two, as it was in one before.
-- Workers of the version before find their mail by reading more until they are started anew.
DROP INDEX queue_due;
CREATE INDEX queue_due ON queue (next_retry, id) WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NULL;
CREATE INDEX queue_due_retried ON queue (next_retry, id) WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NOT NULL;
