-- The register of workers: who is delivering now, and which rows each has taken on, so that `pillarbox doctor` can prove
-- that somebody serves every partition.
SET LOCAL search_path = pillarbox;

-- A worker writes its row when it starts, renews `seen` every `beat`, and removes it when it stops. A row that is not
-- renewed is what a crash leaves.
CREATE TABLE workers (
    worker          text PRIMARY KEY,        -- id@host:pid, as in queue.worker and attempts.worker
    id              text        NOT NULL,    -- in queued.yaml
    host            text        NOT NULL,
    pid             integer     NOT NULL,
    where_condition text        NOT NULL,    -- which rows of queue it claims
    started         timestamptz NOT NULL,
    seen            timestamptz NOT NULL,
    beat            interval    NOT NULL CHECK (beat > interval '0'),
    lease           interval    NOT NULL,
    poll            interval    NOT NULL
) WITH (fillfactor = 50);

-- One missed beat may be a slow network, five are a worker that is gone.
CREATE VIEW workers_seen AS
SELECT w.*, w.seen > now() - 5 * w.beat AS live FROM workers w;

-- Where the roles were left out (see roles), the owner does everything.
DO $$
BEGIN
    IF to_regrole('pillarbox_queued') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON workers TO pillarbox_queued;
        GRANT SELECT ON workers_seen TO pillarbox_queued;
    END IF;
    IF to_regrole('pillarbox_maintainer') IS NOT NULL THEN
        GRANT SELECT ON workers, workers_seen TO pillarbox_maintainer;
    END IF;
END $$;
