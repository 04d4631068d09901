-- Vacuums one leaf now; a leaf somebody else is vacuuming, or has locked, is left to them.
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) pillarbox.{table}
