-- Whether nothing waits for delivery any more.
SELECT NOT EXISTS (SELECT FROM pillarbox.queue) AS idle
