-- Warm-ups: how much of its allowance a source address has used on each of its first days, counted for all workers together.
SET LOCAL search_path = pillarbox;

CREATE TABLE warmups (
    source  inet    NOT NULL,
    day     date    NOT NULL,     -- in UTC
    used    integer NOT NULL,     -- messages workers were granted; what a worker did not send of it is lost for the day
    granted integer NOT NULL,     -- to the last worker that asked
    PRIMARY KEY (source, day),
    CONSTRAINT warmups_used CHECK (used >= granted AND granted > 0)
);

-- Least privilege, as in roles.
DO $$
BEGIN
    IF to_regrole('pillarbox_queued') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON warmups TO pillarbox_queued;
    END IF;
END $$;
