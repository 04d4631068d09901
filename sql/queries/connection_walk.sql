-- Daemons walk indexes and never read a table from end to end. The driver prepares what they ask again and again, and
-- PostgreSQL keeps a prepared statement's plan: one made while a leaf was empty would read the million rows that came
-- since, with every claim, until somebody analyzes it. Behind a pooler nothing is prepared, so every plan is fresh.
-- Nor is any planned anew for the values it is given, as PostgreSQL would do with those over many partitions: to plan the
-- recording of a result takes longer than to record it.
SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan
