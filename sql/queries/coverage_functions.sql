-- Which of these functions of PostgreSQL's own and ours are not immutable in every form they have, or are not there.
SELECT name
  FROM unnest(%(names)s::text[]) AS name
 WHERE NOT EXISTS (SELECT FROM pg_proc WHERE proname = name AND pronamespace IN ('pg_catalog'::regnamespace, 'pillarbox'::regnamespace))
    OR EXISTS (SELECT FROM pg_proc WHERE proname = name AND provolatile <> 'i'
                 AND pronamespace IN ('pg_catalog'::regnamespace, 'pillarbox'::regnamespace))
 ORDER BY name
