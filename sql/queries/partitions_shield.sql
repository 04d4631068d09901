-- Promises, of the default leaf, what its bound says of it already; else attaching a leaf beside it reads all of it.
ALTER TABLE pillarbox.queue_def_def ADD CONSTRAINT repartition_shield CHECK ({check}) NOT VALID
