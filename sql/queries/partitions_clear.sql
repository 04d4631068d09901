-- Removes the workplace.
DROP SCHEMA pillarbox_repartition CASCADE
