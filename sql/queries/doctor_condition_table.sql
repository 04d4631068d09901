-- An empty table with the columns of queue.
CREATE TEMPORARY TABLE pillarbox_condition (LIKE pillarbox.queue) ON COMMIT DROP
