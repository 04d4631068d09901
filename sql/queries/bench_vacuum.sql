-- Leaves every cell the same start: statistics, visibility, nothing for autovacuum to do in the middle.
VACUUM (ANALYZE)
