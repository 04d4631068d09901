-- Running workers, unserved mail, and the room on volumes: rows that their writers renew by a beat.
SET LOCAL search_path = pillarbox;

-- The register of workers: those that run now, and the rows that each serves, so that `pillarbox doctor` can prove that
-- every partition has a worker. A worker writes its row when it starts, renews `seen` every `beat`, and removes it when it
-- stops. A crash leaves a row that is not renewed.
CREATE TABLE workers (
    worker          text PRIMARY KEY,        -- id@host:pid-mark, as in queue.worker and attempts.worker
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

-- The transports that workers have, so that mail for any other is refused where it is queued. Each worker writes those of
-- its queued.yaml when it starts and when it reloads, and renews `seen` every hour; one that no worker has had for 30 days
-- is forgotten.
CREATE TABLE transports (
    id   text PRIMARY KEY,
    seen timestamptz NOT NULL
);

-- Mail that no worker serves, for figures and alarms: each worker knows its own condition only.
-- Maintenance notes the longest due of each leaf and partition; every worker withdraws, with each beat, what its own
-- condition selects. The rows that stay are selected by no living worker: a worker cannot run another's condition.
CREATE TABLE unserved (
    queue__id bigint      PRIMARY KEY,
    leaf      text        NOT NULL,
    partid    text        NOT NULL,  -- '' for none
    due       timestamptz NOT NULL,
    noted     timestamptz NOT NULL   -- since when it stands here
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX unserved_leaf ON unserved (leaf);

-- The room on PostgreSQL's volumes, as `pillarbox volumes` on the server's host reports it, for smtpd on others.
CREATE TABLE volumes (
    host text        NOT NULL,
    path text        NOT NULL,
    free bigint      NOT NULL CHECK (free >= 0),      -- octets that the server's account may still write
    size bigint      NOT NULL CHECK (size >= 0),
    seen timestamptz NOT NULL,
    beat interval    NOT NULL CHECK (beat > interval '0'),  -- how often it is reported
    PRIMARY KEY (host, path)
) WITH (fillfactor = 50);
CREATE TRIGGER volumes_operated BEFORE INSERT OR UPDATE OR DELETE ON volumes
    FOR EACH STATEMENT WHEN (coalesce(current_setting('pillarbox.acting', true), '') <> '') EXECUTE FUNCTION operators_only();

-- As workers_seen: after five beats without a report the room is unknown.
CREATE VIEW volumes_seen AS
SELECT v.*, v.seen > now() - 5 * v.beat AS fresh FROM volumes v;
