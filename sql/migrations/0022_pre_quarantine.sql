-- What reviewers do to held mail beyond releasing and deleting it, and what they were told of.
SET LOCAL search_path = pillarbox;

ALTER TABLE audit DROP CONSTRAINT audit_verb_check;
ALTER TABLE audit ADD CONSTRAINT audit_verb_check CHECK (
    verb IN ('hold', 'release', 'copy', 'redirect', 'retry', 'delay', 'priority', 'move', 'bounce', 'delete', 'undo', 'rescan', 'retention'));

-- Releases held recipients to other addresses: a copy to each, and the held one is deleted, in one step, so that who is cut
-- off and repeats it sends nothing twice. With the rights of whoever asks.
CREATE FUNCTION queue_redirect(ids bigint[], localparts text[], domains text[]) RETURNS TABLE (id bigint, partid text)
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
DECLARE
    partids text[] := '{}';
BEGIN
    FOR n IN 1 .. cardinality(domains) LOOP
        partids := partids || (SELECT array_agg(DISTINCT c.partid) FROM queue_release_copies(ids, localparts[n], domains[n]) AS c);
    END LOOP;
    PERFORM pg_notify('pillarbox', coalesce(p, '')) FROM unnest(partids) AS p;
    RETURN QUERY
    UPDATE queue q SET status = 'DELETE' WHERE q.id = ANY (ids) AND q.status = 'HOLD' RETURNING q.id, partids[1];
END $$;

-- When the reviewers of a quarantine were last told what is new, by which message.
CREATE TABLE digests (
    quarantine   text        PRIMARY KEY,
    sent         timestamptz,
    messages__id uuid
);

-- The held recipients they were told of; a row goes when its recipient is held there no more.
CREATE TABLE digest_rows (
    quarantine text        NOT NULL REFERENCES digests ON DELETE CASCADE,
    queue__id  bigint      NOT NULL,
    told       timestamptz NOT NULL,
    PRIMARY KEY (quarantine, queue__id)
);

REVOKE ALL ON FUNCTION queue_redirect(bigint[], text[], text[]) FROM PUBLIC;
DO $$
BEGIN
    IF to_regrole('pillarbox_reviewer') IS NOT NULL THEN
        GRANT EXECUTE ON FUNCTION queue_redirect TO pillarbox_reviewer;
        GRANT SELECT, INSERT, UPDATE ON digests TO pillarbox_reviewer;
        GRANT SELECT, INSERT, DELETE ON digest_rows TO pillarbox_reviewer;
    END IF;
END $$;
