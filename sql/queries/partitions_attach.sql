-- Puts a new leaf in place.
ALTER TABLE pillarbox_repartition.queue_def DETACH PARTITION pillarbox_repartition.{leaf};
ALTER TABLE pillarbox_repartition.{leaf} SET SCHEMA pillarbox;
ALTER TABLE pillarbox.queue_def ATTACH PARTITION pillarbox.{leaf} {bound};
ALTER TABLE pillarbox.{leaf} DROP CONSTRAINT repartition_bound
