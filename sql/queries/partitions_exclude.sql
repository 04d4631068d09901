-- Holds everybody off, parent first as they come themselves.
LOCK TABLE {leaves} IN ACCESS EXCLUSIVE MODE
