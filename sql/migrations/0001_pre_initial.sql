-- The queue: bodies once, one row per recipient, history by day. States and crash table: ../README.md.
-- Every function names its search_path, so that nothing a caller sets can redirect it.

CREATE SCHEMA IF NOT EXISTS pillarbox;
SET LOCAL search_path = pillarbox;

-- Which migrations this database has; shared/migrate.py adds a row in each migration's own transaction.
CREATE TABLE migrations (
    number  integer PRIMARY KEY,
    name    text        NOT NULL,
    applied timestamptz NOT NULL DEFAULT now()
);

-- A body, stored once for all its recipients. Only the refcount triggers write refcount and released.
CREATE TABLE messages (
    id        uuid PRIMARY KEY,                       -- UUIDv7, so that inserts stay at one end of the index
    refcount  integer     NOT NULL DEFAULT 0,         -- number of queue rows that point here
    released  timestamptz,                            -- when the last of them left; NULL while one remains
    ts        timestamptz NOT NULL DEFAULT now(),
    size      integer     NOT NULL,                   -- octets of content
    smtputf8  boolean     NOT NULL DEFAULT false,     -- MAIL FROM carried SMTPUTF8 (RFC 6531)
    content   bytea       NOT NULL                    -- as submitted, our trace header in front
);
-- Mail is rarely compressible twice over and always read whole: no time for pglz.
ALTER TABLE messages ALTER COLUMN content SET STORAGE EXTERNAL;
ALTER TABLE messages SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
                          autovacuum_vacuum_cost_delay = 0, toast.autovacuum_vacuum_scale_factor = 0,
                          toast.autovacuum_vacuum_threshold = 20000, toast.autovacuum_vacuum_cost_delay = 0);
-- The sweep reads only bodies that lost their last recipient. refcount is in no index, so counting stays a HOT update.
CREATE INDEX messages_released ON messages (released) WHERE released IS NOT NULL;

CREATE TYPE queue_status AS ENUM ('HOLD', 'DELIVER', 'DELETE', 'BOUNCE');

-- Which status may follow which. The same list is shared/states.py; a test compares both with sql/README.md.
CREATE TABLE status_transitions (
    previous queue_status,           -- NULL: the row is new
    next     queue_status NOT NULL,
    UNIQUE NULLS NOT DISTINCT (previous, next)
);
INSERT INTO status_transitions (previous, next) VALUES
    (NULL, 'DELIVER'), (NULL, 'HOLD'),
    ('DELIVER', 'HOLD'), ('HOLD', 'DELIVER'),
    ('DELIVER', 'DELETE'), ('HOLD', 'DELETE'),
    ('DELIVER', 'BOUNCE'), ('HOLD', 'BOUNCE');

CREATE SEQUENCE queue_id_seq;
CREATE SEQUENCE claim_token_seq;

-- One row per recipient. No primary key is possible: a unique constraint would have to contain both partition keys, and
-- the second is an expression. Each leaf has UNIQUE (id); the sequence makes ids unique across leaves.
CREATE TABLE queue (
    id                 bigint       NOT NULL DEFAULT nextval('pillarbox.queue_id_seq'),
    messages__id       uuid         NOT NULL,
    actionid           integer      NOT NULL DEFAULT 1,       -- number of the recipient within its transaction
    status             queue_status NOT NULL DEFAULT 'DELIVER',
    ts                 timestamptz  NOT NULL DEFAULT now(),   -- received
    senderip           text,
    serverid           text,
    senderhelo         text,
    saslusername       text,
    senderlocalpart    text,                                  -- both NULL: the null sender (RFC 5321 section 4.5.5)
    senderdomain       text,
    recipientlocalpart text         NOT NULL,
    recipientdomain    text         NOT NULL,
    size               integer      NOT NULL DEFAULT 0,
    metadata           jsonb,
    transportid        text         NOT NULL DEFAULT 'default',
    jobid              text,
    priority           smallint     NOT NULL DEFAULT 0,
    retry_count        integer      NOT NULL DEFAULT 0,       -- tries begun
    next_retry         timestamptz  NOT NULL DEFAULT now(),
    last_retry         timestamptz,
    last_error         text,
    -- The lease of a claim: in no index, so that a claim is a HOT update. With it the row is due again by itself.
    token              bigint,
    worker             text,
    lease_until        timestamptz
) PARTITION BY LIST (status);

CREATE TABLE queue_hold PARTITION OF queue FOR VALUES IN ('HOLD');
CREATE TABLE queue_def PARTITION OF queue DEFAULT PARTITION BY LIST ((metadata->>'_partid'));
CREATE TABLE queue_def_def PARTITION OF queue_def DEFAULT;

-- Claims read this index from its lower end and nothing else.
CREATE INDEX queue_due ON queue (next_retry, id) WHERE status = 'DELIVER';
-- The sweep's anti-join, and every question about one message.
CREATE INDEX queue_messages__id ON queue (messages__id);
-- What an operator deleted or bounced and a worker has yet to finish: nearly always empty.
CREATE INDEX queue_finish ON queue (id) WHERE status IN ('DELETE', 'BOUNCE');
-- Retention of what is held.
CREATE INDEX queue_hold_ts ON queue_hold (ts);

-- One try, one row. Nothing ever updates history; retention drops whole days.
CREATE SEQUENCE attempts_id_seq;
CREATE TABLE attempts (
    id                 bigint      NOT NULL DEFAULT nextval('pillarbox.attempts_id_seq'),
    ts                 timestamptz NOT NULL,                  -- when the result was recorded
    queue__id          bigint      NOT NULL,
    messages__id       uuid        NOT NULL,
    retry_count        integer     NOT NULL,                  -- which try this was, from 1
    token              bigint      NOT NULL,                  -- the claim it was made under
    worker             text        NOT NULL,
    partid             text,
    transportid        text        NOT NULL,
    jobid              text,
    senderdomain       text,
    recipientdomain    text        NOT NULL,
    size               integer     NOT NULL,
    remote             text,                                  -- host:port talked to; NULL when we got that far with none
    outcome            text        NOT NULL CHECK (outcome IN ('delivered', 'deferred', 'failed', 'lease_expired')),
    scope              text        NOT NULL CHECK (scope IN ('recipient', 'message', 'destination', 'us')),
    uncertain          boolean     NOT NULL DEFAULT false,    -- the final reply was lost: the peer may have the message
    reply_code         integer,
    reply_enhanced     text,
    reply_text         text,
    duration           interval    NOT NULL
) PARTITION BY RANGE (ts);
CREATE INDEX attempts_messages__id ON attempts (messages__id);

-- One finished recipient, one row.
CREATE TABLE archive (
    id                 bigint      NOT NULL,                  -- the queue row's
    messages__id       uuid        NOT NULL,
    actionid           integer     NOT NULL,
    finished           timestamptz NOT NULL,
    result             text        NOT NULL CHECK (result IN ('success', 'failed', 'expired', 'deleted', 'bounced')),
    ts                 timestamptz NOT NULL,
    senderip           text,
    serverid           text,
    saslusername       text,
    senderlocalpart    text,
    senderdomain       text,
    recipientlocalpart text        NOT NULL,
    recipientdomain    text        NOT NULL,
    size               integer     NOT NULL,
    metadata           jsonb,
    transportid        text        NOT NULL,
    jobid              text,
    priority           smallint    NOT NULL,
    retry_count        integer     NOT NULL,
    last_error         text,
    worker             text
) PARTITION BY RANGE (finished);
CREATE INDEX archive_messages__id ON archive (messages__id);

-- Counting -----------------------------------------------------------------------------------------------------------
-- Statement triggers with transition tables: a hold or release (an UPDATE that moves the row) fires neither, so nothing
-- is counted down and up again; row triggers would see DELETE first and lose the body. They only count: the sweep
-- collects. Bodies are locked in id order, so two workers that finish recipients of the same messages cannot deadlock.

CREATE FUNCTION queue_arrived() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    counted_bodies integer;
BEGIN
    IF EXISTS (SELECT FROM arrived WHERE NOT EXISTS
                  (SELECT FROM status_transitions t WHERE t.previous IS NULL AND t.next = arrived.status)) THEN
        RAISE EXCEPTION 'a new queue row begins as DELIVER or HOLD'
            USING ERRCODE = 'check_violation', HINT = 'see pillarbox.status_transitions';
    END IF;
    WITH counted AS (SELECT messages__id AS id, count(*)::integer AS n FROM arrived GROUP BY 1),
         locked AS MATERIALIZED (SELECT m.id FROM messages m JOIN counted c ON c.id = m.id ORDER BY m.id FOR NO KEY UPDATE OF m)
    UPDATE messages m SET refcount = m.refcount + c.n, released = NULL
      FROM counted c JOIN locked l ON l.id = c.id
     WHERE m.id = c.id;
    GET DIAGNOSTICS counted_bodies = ROW_COUNT;
    -- In place of a foreign key, which would lock every body once more for every recipient.
    IF counted_bodies <> (SELECT count(DISTINCT messages__id) FROM arrived) THEN
        RAISE EXCEPTION 'a queue row names a message that does not exist' USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION queue_left() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    WITH counted AS (SELECT messages__id AS id, count(*)::integer AS n FROM departed GROUP BY 1),
         locked AS MATERIALIZED (SELECT m.id FROM messages m JOIN counted c ON c.id = m.id ORDER BY m.id FOR NO KEY UPDATE OF m)
    UPDATE messages m SET refcount = m.refcount - c.n,
                          released = CASE WHEN m.refcount <= c.n THEN clock_timestamp() END
      FROM counted c JOIN locked l ON l.id = c.id
     WHERE m.id = c.id;
    RETURN NULL;
END $$;

CREATE FUNCTION queue_moved() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM status_transitions WHERE previous = OLD.status AND next = NEW.status) THEN
        RAISE EXCEPTION 'queue row % cannot go from % to %', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation', HINT = 'see pillarbox.status_transitions';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION queue_refused() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: it would miscount bodies', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER queue_status BEFORE UPDATE OF status ON queue
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION queue_moved();
CREATE TRIGGER queue_identity BEFORE UPDATE OF id, messages__id ON queue
    FOR EACH ROW WHEN (OLD.id IS DISTINCT FROM NEW.id OR OLD.messages__id IS DISTINCT FROM NEW.messages__id)
    EXECUTE FUNCTION queue_refused();

-- A statement trigger fires only on the table a statement names. So the root, the inner tables and every leaf each have
-- their own, and a statement aimed straight at a leaf counts exactly like one aimed at the root.
CREATE FUNCTION queue_guard(partition regclass) RETURNS void LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER queue_arrived AFTER INSERT ON %s REFERENCING NEW TABLE AS arrived
                    FOR EACH STATEMENT EXECUTE FUNCTION pillarbox.queue_arrived()', partition);
    EXECUTE format('CREATE TRIGGER queue_left AFTER DELETE ON %s REFERENCING OLD TABLE AS departed
                    FOR EACH STATEMENT EXECUTE FUNCTION pillarbox.queue_left()', partition);
    EXECUTE format('CREATE TRIGGER queue_truncated BEFORE TRUNCATE ON %s
                    FOR EACH STATEMENT EXECUTE FUNCTION pillarbox.queue_refused()', partition);
    IF (SELECT relkind = 'r' FROM pg_class WHERE oid = partition) THEN
        EXECUTE format('ALTER TABLE %s ADD UNIQUE (id)', partition);
        -- Room on the page for a claim's new row version, and vacuum by count: a scale factor lets dead rows grow with
        -- the backlog.
        EXECUTE format('ALTER TABLE %s SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0,
            autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_insert_scale_factor = 0.2,
            autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000, autovacuum_vacuum_cost_delay = 0)', partition);
    END IF;
END $$;

SELECT queue_guard(t::regclass) FROM unnest(ARRAY['queue', 'queue_hold', 'queue_def', 'queue_def_def']) AS t;

-- Makes the leaf queue_def_<suffix> for these partition ids; false when exactly that leaf is already there.
CREATE FUNCTION queue_leaf_create(suffix text, partids text[]) RETURNS boolean
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    leaf text := 'queue_def_' || suffix;
    bound text := (SELECT 'FOR VALUES IN (' || string_agg(quote_literal(p), ', ' ORDER BY p) || ')' FROM unnest(partids) AS p);
    present text := (SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = to_regclass('pillarbox.' || leaf));
BEGIN
    IF present = bound THEN
        RETURN false;
    ELSIF present IS NOT NULL THEN
        RAISE EXCEPTION 'partition % exists %, wanted %', leaf, present, bound USING ERRCODE = 'duplicate_table';
    END IF;
    EXECUTE format('CREATE TABLE %I PARTITION OF queue_def %s', leaf, bound);
    PERFORM queue_guard(leaf::regclass);
    RETURN true;
END $$;

-- History by day (UTC): makes the days from today to `ahead` days on, and says how many it made. Two callers at once are
-- harmless: the lock lets one of them do it.
CREATE FUNCTION history_create(now timestamptz, ahead integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    history text;
    midnight timestamptz;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('pillarbox.history_create'));
    FOREACH history IN ARRAY ARRAY['attempts', 'archive'] LOOP
        FOR d IN -1..ahead LOOP
            midnight := date_trunc('day', now, 'UTC') + make_interval(hours => 24 * d);  -- UTC days have 24 hours
            CONTINUE WHEN to_regclass(format('pillarbox.%s_%s', history, to_char(midnight AT TIME ZONE 'UTC', 'YYYYMMDD'))) IS NOT NULL;
            EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                history || '_' || to_char(midnight AT TIME ZONE 'UTC', 'YYYYMMDD'), history, midnight, midnight + interval '24 hours');
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

-- What people and programs see: the stored status, refined by time.
CREATE VIEW queue_state AS
SELECT q.*, CASE WHEN q.status <> 'DELIVER' THEN q.status::text
                 WHEN q.lease_until > now() THEN 'SENDING'
                 WHEN q.next_retry <= now() THEN 'ACTIVE'
                 WHEN q.retry_count = 0 THEN 'SCHEDULED'
                 ELSE 'DEFER' END AS state
  FROM queue q;
