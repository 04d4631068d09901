-- Fresh urgent mail is found without reading urgent mail that waits to be tried again, as ordinary mail is since `retried`.
SET LOCAL search_path = pillarbox;

-- queue_due_urgent, which has both, stays: workers of the version before claim by it, and questions about all urgent mail use it.
CREATE INDEX queue_due_urgent_fresh ON queue (next_retry, id) WHERE status = 'DELIVER' AND priority > 0 AND last_error IS NULL;
CREATE INDEX queue_due_urgent_retried ON queue (next_retry, id) WHERE status = 'DELIVER' AND priority > 0 AND last_error IS NOT NULL;
