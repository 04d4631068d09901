-- Takes an old leaf out and drops it; no row leaves the queue, so nothing is counted.
ALTER TABLE pillarbox.queue_def DETACH PARTITION pillarbox.{leaf};
DROP TABLE pillarbox.{leaf}
