-- Has PostgreSQL itself judge a condition: that of an index may hold nothing but columns and immutable functions and
-- operators, and no subquery, aggregate or function that returns a set.
CREATE INDEX ON pg_temp.pillarbox_condition (id) WHERE ({where})
