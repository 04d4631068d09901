-- Takes the promise back: the bound is enough.
ALTER TABLE pillarbox.queue_def_def DROP CONSTRAINT repartition_shield
