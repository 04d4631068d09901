-- Begins the transaction of a policy list's query, which may only read.
BEGIN READ ONLY
