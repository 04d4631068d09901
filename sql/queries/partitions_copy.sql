-- Copies the next rows of an old leaf into the new ones.
SELECT pillarbox_repartition.copy('pillarbox.{leaf}', {batch})
