-- Brings the last changed rows up to date, now that nobody can change more.
SELECT pillarbox_repartition.finish({batch})
