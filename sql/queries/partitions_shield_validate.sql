-- Proves the promise while mail flows.
ALTER TABLE pillarbox.queue_def_def VALIDATE CONSTRAINT repartition_shield
