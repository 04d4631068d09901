-- Brings the copies of rows that changed meanwhile up to date.
SELECT pillarbox_repartition.catch_up({batch})
