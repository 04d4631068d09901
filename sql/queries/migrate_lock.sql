-- One step of one migration at a time, to the end of its transaction. Daemons, which only read this table, go on.
LOCK TABLE pillarbox.migrations IN SHARE ROW EXCLUSIVE MODE
