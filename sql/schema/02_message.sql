-- Bodies, each stored once for all its recipients, and how many recipients need it. States and crash table:
-- ../README.md.
SET LOCAL search_path = pillarbox;

-- A body is never updated: its recipients are counted beside it, in rows so narrow that counting does not copy the body
-- (with the body in the counted row it took a quarter of the server's time for a message).
--
-- Room of bodies that are gone is kept for the next ones (vacuum_truncate). Bodies come and go within seconds, so
-- vacuum would find the end of the table empty again and again, take a lock that stops all mail to cut it off, and the
-- next bodies would have PostgreSQL write each of those pages with zeros first: a third of its time for a message of
-- 1 MB. After a flood that will not come again, VACUUM (TRUNCATE) pillarbox.messages gives the room back to the file
-- system.
CREATE TABLE messages (
    id        uuid PRIMARY KEY,                       -- UUIDv7, so that inserts stay at one end of the index
    ts        timestamptz NOT NULL DEFAULT now(),
    size      integer     NOT NULL,                   -- octets of content
    smtputf8  boolean     NOT NULL DEFAULT false,     -- MAIL FROM carried SMTPUTF8 (RFC 6531)
    content   bytea       NOT NULL,                   -- as submitted, our trace header in front
    msgid     text COLLATE "C",                       -- its Message-ID, without angle brackets
    subject   text                                    -- decoded; NULL also where subjects are not kept
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        vacuum_truncate = off,
        toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000,
        toast.autovacuum_vacuum_cost_delay = 0, toast.vacuum_truncate = off);
-- Mail is rarely compressible twice over and always read whole: no time for pglz.
ALTER TABLE messages ALTER COLUMN content SET STORAGE EXTERNAL;

-- Finds a message by its Message-ID. By a hash, so that an entry is 16 octets, however long the Message-ID; a query
-- compares the Message-ID as well.
CREATE INDEX messages_msgid ON messages (hashtextextended(msgid, 0)) WHERE msgid IS NOT NULL;

-- How many queue rows point at a body: a row for every body that one points at, and none for the others. Only the count
-- triggers write here and in `released`.
CREATE TABLE refcounts (
    messages__id uuid PRIMARY KEY,
    refcount     integer NOT NULL                     -- in no index, so counting is a HOT update
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

-- Bodies that lost their last recipient, and when: what the sweep looks through, oldest first.
CREATE TABLE released (
    messages__id uuid PRIMARY KEY,
    ts           timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        vacuum_truncate = off);
CREATE INDEX released_ts ON released (ts);

-- For people: every body, the number of recipients that need it, and since when none does.
CREATE VIEW bodies AS
SELECT m.id, m.ts, m.size, coalesce(c.refcount, 0) AS refcount, r.ts AS released
  FROM messages m LEFT JOIN refcounts c ON c.messages__id = m.id LEFT JOIN released r ON r.messages__id = m.id;

-- The functions below keep the counts. They only count: the sweep collects. Bodies come in id order, so two workers
-- that finish recipients of the same messages do not deadlock.
--
-- A session keeps the plans of these functions, and the first may be made while the tables are empty. `id = ANY` and no
-- Seq Scan leave one plan that is right at any size: one walk along the primary key, for the ids at hand and no others.

-- Recipients have arrived: adds `by` to the counts of these bodies; returns how many of the bodies there are.
--
-- A body this transaction did not write itself is locked against the sweep, which locks before it looks for recipients:
-- it either sees these, or has taken the body and it is not found here. Only locked bodies are counted as found: a body
-- that is committed while this waits for its count is not. All transactions lock messages before refcounts. `ts` beside
-- xmin, because ids of transactions come round again after 2^32.
CREATE FUNCTION refcount_up(bodies uuid[], by integer[]) RETURNS integer
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp SET enable_seqscan = off AS $$
DECLARE
    older uuid[];
BEGIN
    SELECT array_agg(m.id) INTO older FROM (
        SELECT id FROM messages WHERE id = ANY (bodies) AND (xmin <> pg_current_xact_id()::xid OR ts <> now())
         ORDER BY id FOR KEY SHARE) AS m;
    INSERT INTO refcounts AS r SELECT c.id, c.n FROM unnest(bodies, by) AS c(id, n)
        ON CONFLICT (messages__id) DO UPDATE SET refcount = r.refcount + EXCLUDED.refcount;
    IF older IS NOT NULL THEN
        -- Writing a note finds the one that a snapshot is too old to see: SQLSTATE 40001, where DELETE would leave it.
        INSERT INTO released SELECT b.id, clock_timestamp() FROM unnest(older) AS b(id) ON CONFLICT (messages__id) DO NOTHING;
    END IF;
    DELETE FROM released r WHERE r.messages__id = ANY (bodies);
    RETURN (SELECT count(*) FROM messages m WHERE m.id = ANY (older)
                OR m.id = ANY (bodies) AND m.xmin = pg_current_xact_id()::xid AND m.ts = now());
END $$;

-- Recipients have left of bodies that others still need, as far as their counts say: takes `by` from the counts. Two that
-- take the last recipients of a body at the same time each saw the other's: the later of them comes to zero here. Bodies
-- that queue_left has found to have no recipient any more may be among these. Without bitmaps every plan goes in id order.
CREATE FUNCTION refcount_down(bodies uuid[], by integer[]) RETURNS void
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    UPDATE refcounts r SET refcount = r.refcount - c.n FROM unnest(bodies, by) AS c(id, n)
     WHERE r.messages__id = ANY (bodies) AND r.messages__id = c.id;
    DELETE FROM refcounts r WHERE r.messages__id = ANY (bodies) AND r.refcount <= 0;
    INSERT INTO released SELECT b.id, clock_timestamp() FROM unnest(bodies) AS b(id)
     WHERE NOT EXISTS (SELECT FROM refcounts r WHERE r.messages__id = b.id)
        ON CONFLICT (messages__id) DO NOTHING;
END $$;

-- Counts the recipients of these bodies again; returns how many of the bodies there are. For a transaction that has
-- moved rows, since the transition tables of a MERGE hold the rows its UPDATE moved as well, as if they had left or
-- arrived (measured on 15 and 18), and for an operator after a miscount. Bodies and counts are locked first, hence any
-- other change of their number either is seen or adds to this one later.
CREATE FUNCTION refcount_anew(bodies uuid[]) RETURNS integer
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp SET enable_seqscan = off AS $$
DECLARE
    there uuid[];
BEGIN
    SELECT array_agg(m.id) INTO there FROM (SELECT id FROM messages WHERE id = ANY (bodies) ORDER BY id FOR UPDATE) AS m;
    PERFORM FROM refcounts r WHERE r.messages__id = ANY (there) ORDER BY r.messages__id FOR UPDATE;
    WITH counted AS MATERIALIZED (
        SELECT b.id, (SELECT count(*) FROM queue q WHERE q.messages__id = b.id)::integer AS n FROM unnest(there) AS b(id)
    ), gone AS (
        DELETE FROM refcounts r USING counted c WHERE r.messages__id = ANY (there) AND r.messages__id = c.id AND c.n = 0
    ), noted AS (
        INSERT INTO released SELECT c.id, clock_timestamp() FROM counted c WHERE c.n = 0
            ON CONFLICT (messages__id) DO NOTHING
    ), needed AS (
        DELETE FROM released r USING counted c WHERE r.messages__id = ANY (there) AND r.messages__id = c.id AND c.n > 0
    )
    INSERT INTO refcounts SELECT c.id, c.n FROM counted c WHERE c.n > 0
        ON CONFLICT (messages__id) DO UPDATE SET refcount = EXCLUDED.refcount;
    RETURN coalesce(cardinality(there), 0);
END $$;

-- The Message-ID and the subject of a message, for the archive: one walk along the primary key, as above. It is called
-- for each recipient that finishes: joined with all of them at once, PostgreSQL compares each with each where it expects few.
CREATE FUNCTION message_headers(body uuid) RETURNS TABLE (msgid text, subject text)
LANGUAGE plpgsql STABLE ROWS 1 SET search_path = pillarbox, pg_temp SET enable_seqscan = off AS $$
BEGIN
    RETURN QUERY SELECT m.msgid, m.subject FROM messages m WHERE m.id = body;
END $$;
