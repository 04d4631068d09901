-- A table such as pillarbox.queue_guard makes it now, for the rest of this transaction and nobody else.
CREATE TEMPORARY TABLE repartition_model (LIKE pillarbox.queue) ON COMMIT DROP;
SELECT pillarbox.queue_guard('pg_temp.repartition_model')
