-- Gives the planner figures about a new leaf before the first claim sees it.
ANALYZE pillarbox_repartition.{leaf}
