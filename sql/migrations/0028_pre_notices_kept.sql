-- A notice that a rate holds back is kept until it is sent, however long that takes; only what PostgreSQL itself refuses is
-- forgotten.
SET LOCAL search_path = pillarbox;

ALTER TABLE notices ADD COLUMN refused timestamptz;  -- since when it could not be queued; NULL: it was not tried, or waits for a rate
CREATE INDEX notices_refused ON notices (refused) WHERE refused IS NOT NULL;

-- Forgets counts of hours past, suppressions past their end and notices that were refused for `keep`; at most `batch` of each.
CREATE OR REPLACE FUNCTION maintain_forget_notices(at timestamptz, keep interval, batch integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    forgotten integer;
    more integer;
BEGIN
    DELETE FROM notice_counts c WHERE (c.hour, c.sender) IN (
        SELECT o.hour, o.sender FROM notice_counts o WHERE o.hour < at - interval '1 day' ORDER BY o.hour LIMIT batch FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    DELETE FROM suppressions s WHERE s.target IN (
        SELECT o.target FROM suppressions o WHERE o.expires < at ORDER BY o.expires LIMIT batch FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS more = ROW_COUNT;
    forgotten := greatest(forgotten, more);
    DELETE FROM notices n WHERE n.id IN (
        SELECT o.id FROM notices o WHERE o.refused < at - keep ORDER BY o.refused LIMIT batch FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS more = ROW_COUNT;
    RETURN greatest(forgotten, more);
END $$;

DO $$
BEGIN
    IF to_regrole('pillarbox_queued') IS NOT NULL THEN
        GRANT UPDATE (refused) ON notices TO pillarbox_queued;
    END IF;
END $$;
