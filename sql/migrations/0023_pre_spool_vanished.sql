-- Which messages that smtpd answered 250 this database does not know: asked after a failover.
SET LOCAL search_path = pillarbox;

-- Those of `ids` of which nothing is left: no body, no recipient that waits, none that is finished. The body is looked for
-- first, and is mostly there; bodies that were swept have an archive row, and one whose row was lost has its recipient.
CREATE FUNCTION spool_vanished(ids uuid[]) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT asked.id FROM unnest(ids) AS asked(id)
     WHERE NOT EXISTS (SELECT FROM messages m WHERE m.id = asked.id)
       AND NOT EXISTS (SELECT FROM archive a WHERE a.messages__id = asked.id)
       AND NOT EXISTS (SELECT FROM queue q WHERE q.messages__id = asked.id)
$$;
REVOKE ALL ON FUNCTION spool_vanished FROM PUBLIC;

-- smtpd still reads no mail: it learns only that a message of which it knows the id is gone.
DO $$
BEGIN
    GRANT EXECUTE ON FUNCTION spool_vanished TO pillarbox_smtpd;
EXCEPTION WHEN undefined_object OR insufficient_privilege THEN
    RAISE NOTICE 'roles are left out, as when they were made';
END $$;
