-- Who asks: the login, every role whose rights it has, whether it owns the queue, and whether it may spool mail.
SELECT current_user AS login,
       ARRAY(SELECT rolname::text FROM pg_roles WHERE pg_has_role(current_user, oid, 'USAGE')) AS roles,
       coalesce((SELECT pg_has_role(current_user, c.relowner, 'USAGE')
                   FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                  WHERE n.nspname = 'pillarbox' AND c.relname = 'queue'), false) AS operator,
       coalesce((SELECT bool_or(has_function_privilege(current_user, p.oid, 'EXECUTE'))
                   FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                  WHERE n.nspname = 'pillarbox' AND p.proname = 'enqueue'), false) AS spools
