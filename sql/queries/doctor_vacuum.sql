-- The tables of the queue that this role may not vacuum: those neither its own nor of its own database, nor, from PostgreSQL
-- 17 on, such as it may MAINTAIN. The same rule as in maintain_vacuum_wanted.
SELECT v.leaf
  FROM pillarbox.maintain_vacuum v
  JOIN pg_class c ON c.oid = to_regclass(format('pillarbox.%I', v.leaf))
  JOIN pg_database d ON d.datname = current_database()
 WHERE c.relkind = 'r' AND NOT pg_has_role(d.datdba, 'USAGE')
   AND NOT CASE WHEN current_setting('server_version_num')::integer >= 170000
                THEN has_table_privilege(c.oid, 'MAINTAIN') ELSE pg_has_role(c.relowner, 'USAGE') END
 ORDER BY v.leaf
