-- What must agree after a drain: nothing waits, each recipient is archived once, tried once, and every body is let go.
SELECT (SELECT count(*) FROM pillarbox.queue WHERE next_retry <= now()) AS waiting,
       (SELECT count(*) FROM pillarbox.archive WHERE result = 'success') AS archived,
       (SELECT count(DISTINCT id) FROM pillarbox.archive) AS distinct_archived,
       (SELECT count(*) FROM pillarbox.attempts WHERE outcome = 'delivered') AS tried,
       (SELECT count(*) FROM pillarbox.bodies WHERE refcount <> 0 OR released IS NULL) AS held,
       (SELECT count(*) FROM pillarbox.messages) AS messages
