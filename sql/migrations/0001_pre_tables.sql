-- Tables: bodies once, one row per recipient, history by day. States and crash table: ../README.md.

CREATE SCHEMA IF NOT EXISTS pillarbox;
SET LOCAL search_path = pillarbox;

-- Which migrations this database has; shared/postgres/migrate.py adds a row in each migration's own transaction.
CREATE TABLE migrations (
    number  integer PRIMARY KEY,
    name    text        NOT NULL,
    applied timestamptz NOT NULL DEFAULT now()
);

-- A body, stored once for all its recipients. It is never updated: what changes is counted beside it, in rows so narrow
-- that counting does not copy the body (which stood in the counted row once: a quarter of the server's time for a message).
CREATE TABLE messages (
    id        uuid PRIMARY KEY,                       -- UUIDv7, so that inserts stay at one end of the index
    ts        timestamptz NOT NULL DEFAULT now(),
    size      integer     NOT NULL,                   -- octets of content
    smtputf8  boolean     NOT NULL DEFAULT false,     -- MAIL FROM carried SMTPUTF8 (RFC 6531)
    content   bytea       NOT NULL                    -- as submitted, our trace header in front
);
-- Mail is rarely compressible twice over and always read whole: no time for pglz.
ALTER TABLE messages ALTER COLUMN content SET STORAGE EXTERNAL;
ALTER TABLE messages SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
                          toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000,
                          toast.autovacuum_vacuum_cost_delay = 0);

-- How many queue rows point at a body: a row for every body that one points at, and none for the others. Only the count
-- triggers write here and in `released`.
CREATE TABLE refcounts (
    messages__id uuid PRIMARY KEY,
    refcount     integer NOT NULL                     -- in no index, so counting is a HOT update
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Bodies that lost their last recipient, and when: what the sweep looks through, oldest first.
CREATE TABLE released (
    messages__id uuid PRIMARY KEY,
    ts           timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX released_ts ON released (ts);

-- For people: every body, how many recipients need it, and since when none does.
CREATE VIEW bodies AS
SELECT m.id, m.ts, m.size, coalesce(c.refcount, 0) AS refcount, r.ts AS released
  FROM messages m LEFT JOIN refcounts c ON c.messages__id = m.id LEFT JOIN released r ON r.messages__id = m.id;

CREATE TYPE queue_status AS ENUM ('HOLD', 'DELIVER', 'DELETE', 'BOUNCE');

-- Which status may follow which. The same list is shared/mail/states.py; a test compares both with sql/README.md.
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

-- Nothing in an envelope may carry a second line into a log, a header or another command (RFC 5321 section 4.1.2). A domain
-- is checked where a value is written; a constraint of the table would be checked anew by each claim.
CREATE DOMAIN envelope_text AS text CONSTRAINT envelope_text_is_one_line CHECK (VALUE !~ '[\x01-\x1f\x7f]');

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
    senderhelo         envelope_text,
    saslusername       envelope_text,
    senderlocalpart    envelope_text,                                  -- both NULL: the null sender (RFC 5321 section 4.5.5)
    senderdomain       envelope_text,
    recipientlocalpart envelope_text NOT NULL,
    recipientdomain    envelope_text NOT NULL,
    size               integer      NOT NULL DEFAULT 0,
    metadata           jsonb,
    transportid        text         NOT NULL DEFAULT 'default',
    jobid              text,
    priority           smallint     NOT NULL DEFAULT 0,       -- urgent above 0, bulk below (RFC 6710 has -9 to 9)
    retry_count        integer      NOT NULL DEFAULT 0,       -- tries begun
    next_retry         timestamptz  NOT NULL DEFAULT now(),
    last_retry         timestamptz,
    last_error         text,
    -- The lease of a claim: in no index, so that a claim is a HOT update. With it the row is due again by itself.
    token              bigint,
    worker             text,
    lease_until        timestamptz,
    lost_count         smallint     NOT NULL DEFAULT 0,       -- claims in a row whose lease ran out without a result
    CONSTRAINT queue_envelope CHECK (
        recipientlocalpart <> '' AND recipientdomain <> '' AND (senderlocalpart IS NULL) = (senderdomain IS NULL)),
    CONSTRAINT queue_priority CHECK (priority BETWEEN -9 AND 9)
) PARTITION BY LIST (status);

CREATE TABLE queue_hold PARTITION OF queue FOR VALUES IN ('HOLD');
CREATE TABLE queue_def PARTITION OF queue DEFAULT PARTITION BY LIST ((metadata->>'_partid'));
CREATE TABLE queue_def_def PARTITION OF queue_def DEFAULT;

-- Claims read these indexes from their lower ends and nothing else: one for each class of priority, each in the order
-- mail is due. A row is in exactly one of them, so three cost no more than one.
CREATE INDEX queue_due_urgent ON queue (next_retry, id) WHERE status = 'DELIVER' AND priority > 0;
CREATE INDEX queue_due ON queue (next_retry, id) WHERE status = 'DELIVER' AND priority = 0;
CREATE INDEX queue_due_bulk ON queue (next_retry, id) WHERE status = 'DELIVER' AND priority < 0;
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
    result             text        NOT NULL CHECK (result IN ('success', 'rejected', 'failed', 'expired', 'lock_expired',
                                                              'deleted', 'bounced')),
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
