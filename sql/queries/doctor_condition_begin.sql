-- Lets this one transaction make a temporary table, which goes with it.
SET TRANSACTION READ WRITE
