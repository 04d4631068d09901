-- A notification of mail that asked for REQUIRETLS asks for it too, and so does its copy (RFC 8689 section 5).
SET LOCAL search_path = pillarbox;

CREATE OR REPLACE FUNCTION notice_send(at timestamptz, ids bigint[], recipients text[], content bytea, transport text, smtputf8 boolean)
RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    gone integer;
    told text[];
    protected boolean;
    message uuid;
BEGIN
    WITH deleted AS (
        DELETE FROM notices n WHERE n.id = ANY (ids)
        RETURNING n.senderlocalpart || '@' || n.senderdomain AS sender, n.metadata @> '{"_requiretls": true}' AS requiretls
    )
    SELECT count(*), array_agg(DISTINCT d.sender), coalesce(bool_or(d.requiretls), false) INTO gone, told, protected FROM deleted d;
    IF gone <> cardinality(ids) OR cardinality(told) <> 1 THEN
        RAISE EXCEPTION 'notices % are not those of one sender', ids USING ERRCODE = 'invalid_parameter_value';
    END IF;
    message := enqueue('', recipients, content, transportid => transport, smtputf8 => notice_send.smtputf8);
    -- It is ours, not of the login that this worker uses.
    UPDATE queue q
       SET serverid = 'bounce', saslusername = NULL,
           metadata = CASE WHEN protected THEN q.metadata || '{"_requiretls": true}' ELSE q.metadata END
     WHERE q.messages__id = message;
    INSERT INTO notice_counts AS c (hour, sender, notices)
        SELECT date_trunc('hour', at, 'UTC'), s, 1 FROM unnest(ARRAY['', told[1]]) AS s
        ON CONFLICT (hour, sender) DO UPDATE SET notices = c.notices + 1;
    RETURN message;
END $$;

-- Workers of the version before call it without `requiretls`.
DROP FUNCTION notice_copy(text, bytea, text, boolean);
CREATE FUNCTION notice_copy(recipient text, content bytea, transport text, smtputf8 boolean, requiretls boolean DEFAULT false) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    message uuid := enqueue('', ARRAY[recipient], content, transportid => transport, smtputf8 => notice_copy.smtputf8);
BEGIN
    UPDATE queue q
       SET serverid = 'bounce', saslusername = NULL,
           metadata = CASE WHEN requiretls THEN q.metadata || '{"_requiretls": true}' ELSE q.metadata END
     WHERE q.messages__id = message;
    RETURN message;
END $$;

REVOKE ALL ON FUNCTION notice_copy(text, bytea, text, boolean, boolean) FROM PUBLIC;
DO $$
BEGIN
    GRANT EXECUTE ON FUNCTION notice_copy(text, bytea, text, boolean, boolean) TO pillarbox_queued;
EXCEPTION WHEN undefined_object OR insufficient_privilege THEN
    RAISE NOTICE 'roles are left out, as when they were made';
END $$;
