-- Running daemons and workers, unserved mail, and the room on volumes: rows that their writers renew by a beat.
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

-- One missed beat may be a slow network, five are a worker that is gone; one seen in the future is gone too, since the clock
-- was put back.
CREATE VIEW workers_seen AS
SELECT w.*, w.seen > now() - 5 * w.beat AND w.seen < now() + 5 * w.beat AS live FROM workers w;

-- Every process of smtpd, queued, httpd and collect that runs: which version it is, what it has done, and, of a worker, where
-- it delivers. For people: nothing is decided by it. A process writes its row when it starts, renews it every `beat`, and
-- removes it when it stops. A collector has the rights of an application, so any application may write rows: as a collector, and
-- never over the row of another login.
CREATE TABLE daemons (
    daemon       text        PRIMARY KEY CHECK (length(daemon) <= 500),  -- id@host:pid-mark; of a worker as in workers.worker
    kind         text        NOT NULL CHECK (kind IN ('smtpd', 'queued', 'httpd', 'collect')),
    id           text        NOT NULL CHECK (length(id) <= 255),  -- of a worker its id in queued.yaml, else the kind
    version      text        NOT NULL CHECK (length(version) <= 100),
    host         text        NOT NULL CHECK (length(host) <= 255),
    pid          integer     NOT NULL,
    login        name        NOT NULL DEFAULT session_user,
    started      timestamptz NOT NULL,
    seen         timestamptz NOT NULL,
    beat         interval    NOT NULL CHECK (beat > interval '0'),
    -- In the last 1, 5 and 15 minutes: recipients it accepted, and attempts it recorded.
    accepted     bigint[]    NOT NULL CHECK (cardinality(accepted) = 3),
    delivered    bigint[]    NOT NULL CHECK (cardinality(delivered) = 3),
    deferred     bigint[]    NOT NULL CHECK (cardinality(deferred) = 3),
    failed       bigint[]    NOT NULL CHECK (cardinality(failed) = 3),
    -- Its busiest destinations: how many attempts are under way to each, how many it allows now (0: it does not answer), and
    -- how many deliveries wait in memory for their turn.
    destinations text[]      NOT NULL,
    attempts     integer[]   NOT NULL,
    allowed      integer[]   NOT NULL,
    waiting      integer[]   NOT NULL,
    CHECK (cardinality(destinations) <= 50 AND length(array_to_string(destinations, '')) <= 50 * 300 AND cardinality(attempts) = cardinality(destinations)
           AND cardinality(allowed) = cardinality(destinations) AND cardinality(waiting) = cardinality(destinations))
) WITH (fillfactor = 50);

-- As workers_seen.
CREATE VIEW daemons_seen AS
SELECT d.*, d.seen > now() - 5 * d.beat AND d.seen < now() + 5 * d.beat AS live FROM daemons d;

-- Writes or renews the row of a daemon; returns when it was first written. A crash of the server may lose it, and the next beat
-- writes it again, so it waits for no disk and no standby. Rows that were not renewed for a day are forgotten, and of one login
-- all but the newest 500. A login is of a kind if it could do that daemon's work.
CREATE FUNCTION daemon_beat(
    me text, kind text, id text, version text, host text, pid integer, started timestamptz, beat interval,
    accepted bigint[], delivered bigint[], deferred bigint[], failed bigint[],
    destinations text[], attempts integer[], allowed integer[], waiting integer[]
) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
DECLARE
    since timestamptz;
BEGIN
    IF NOT (CASE daemon_beat.kind WHEN 'smtpd' THEN has_column_privilege(session_user, 'messages', 'content', 'INSERT')
                                  WHEN 'queued' THEN has_table_privilege(session_user, 'queue', 'DELETE')
                                  WHEN 'httpd' THEN has_function_privilege(session_user, 'act_as(text)', 'EXECUTE')
                                  ELSE true END) THEN
        RAISE EXCEPTION '% lacks the rights of %', session_user, daemon_beat.kind USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM daemons
     WHERE daemon <> me AND (seen < now() - interval '1 day'
           OR daemon IN (SELECT d.daemon FROM daemons d WHERE d.login = session_user ORDER BY d.seen DESC OFFSET 500));
    INSERT INTO daemons AS known
    VALUES (me, daemon_beat.kind, daemon_beat.id, daemon_beat.version, daemon_beat.host, daemon_beat.pid, session_user,
            coalesce(daemon_beat.started, now()), now(), daemon_beat.beat, daemon_beat.accepted, daemon_beat.delivered,
            daemon_beat.deferred, daemon_beat.failed, daemon_beat.destinations, daemon_beat.attempts, daemon_beat.allowed,
            daemon_beat.waiting)
        ON CONFLICT (daemon) DO UPDATE
       SET seen = excluded.seen, beat = excluded.beat, accepted = excluded.accepted, delivered = excluded.delivered,
           deferred = excluded.deferred, failed = excluded.failed, destinations = excluded.destinations,
           attempts = excluded.attempts, allowed = excluded.allowed, waiting = excluded.waiting
     WHERE known.login = session_user
    RETURNING known.started INTO since;
    RETURN since;
END $$;

-- Removes the row of a daemon that stops.
CREATE FUNCTION daemon_leave(me text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    DELETE FROM daemons WHERE daemon = me AND login = session_user
$$;

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
SELECT v.*, v.seen > now() - 5 * v.beat AND v.seen < now() + 5 * v.beat AS fresh FROM volumes v;
