-- The leaves with more dead rows than `dead`, the worst first, and whether this role may vacuum them: its own, those of its
-- own database, and from PostgreSQL 17 on those it may MAINTAIN (VACUUM's own rule).
SELECT v.leaf, pg_has_role(d.datdba, 'USAGE') OR CASE WHEN current_setting('server_version_num')::integer >= 170000
               THEN has_table_privilege(c.oid, 'MAINTAIN') ELSE pg_has_role(c.relowner, 'USAGE') END AS allowed
  FROM pillarbox.maintain_vacuum v
  JOIN pg_class c ON c.oid = to_regclass(format('pillarbox.%%I', v.leaf))
  JOIN pg_database d ON d.datname = current_database()
 WHERE v.dead >= %(dead)s
 ORDER BY v.dead DESC
