-- History: attempts and finished recipients, by day. Nothing ever updates it; maintenance drops whole days.
SET LOCAL search_path = pillarbox;

-- One try, one row.
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
    remote             text,                                 -- host:port talked to; NULL when we got that far with none
    outcome            text        NOT NULL CHECK (outcome IN ('delivered', 'deferred', 'failed', 'lease_expired')),
    scope              text        NOT NULL CHECK (scope IN ('recipient', 'message', 'destination', 'us')),
    uncertain          boolean     NOT NULL DEFAULT false,    -- the final reply was lost: the peer may have the message
    reply_code         integer,
    reply_enhanced     text,
    reply_text         text,
    duration           interval    NOT NULL,
    -- What was negotiated: "TLSv1.3 TLS_AES_256_GCM_SHA384 verified", or "none".
    tls                text,
    source             text,                                  -- the address we spoke from
    conversation       text,                                  -- of a try that did not deliver, where it is kept
    -- The transaction that recorded it: with a snapshot it tells what a reader has seen (schema/22_webhook.sql).
    xact               bigint      NOT NULL DEFAULT pg_current_xact_id()::text::bigint
) PARTITION BY RANGE (ts);
CREATE INDEX attempts_messages__id ON attempts (messages__id);

-- Ids rise with the rows, so a few octets for each stretch of pages lead to the newest without reading the day.
CREATE INDEX attempts_id ON attempts USING brin (id) WITH (pages_per_range = 32, autosummarize = on);

-- In the same way, what is new to a reader.
CREATE INDEX attempts_xact ON attempts USING brin (xact, ts) WITH (pages_per_range = 32, autosummarize = on);

-- One finished recipient, one row.
CREATE TABLE archive (
    id                 bigint      NOT NULL,                  -- the queue row's
    messages__id       uuid        NOT NULL,
    actionid           integer     NOT NULL,
    finished           timestamptz NOT NULL,
    result             text        NOT NULL CHECK (result IN ('success', 'rejected', 'failed', 'expired',
                                                              'lock_expired', 'deleted', 'bounced')),
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
    worker             text,
    msgid              text COLLATE "C",                      -- the message's, as in `messages`
    subject            text,
    xact               bigint      NOT NULL DEFAULT pg_current_xact_id()::text::bigint  -- as in attempts
) PARTITION BY RANGE (finished);
CREATE INDEX archive_messages__id ON archive (messages__id);

-- Finds what was sent by its Message-ID, as messages_msgid does.
CREATE INDEX archive_msgid ON archive (hashtextextended(msgid, 0)) WHERE msgid IS NOT NULL;

-- Finding a finished recipient by the id that logs, notifications and `pillarbox deadletters` name. Rows arrive nearly
-- in the order of their ids, so ranges of pages differ by their lowest and highest; a few stragglers that
-- waited for days widen no range with this operator class. Of 300,000 rows a day, one is found in 5 ms where reading
-- the day takes 50. A settled recipient pays 25 octets of WAL for it, with a btree 106, of 1330.
CREATE INDEX archive_id ON archive USING brin (id int8_minmax_multi_ops)
    WITH (pages_per_range = 32, autosummarize = on);
CREATE INDEX archive_xact ON archive USING brin (xact, finished) WITH (pages_per_range = 32, autosummarize = on);

-- For roles with granted rights maintenance uses the server's clock: a caller's clock could drop the history of years to
-- come. So each function here, and each of the other files that maintenance calls, exists twice: the one with the time
-- as an argument is for the owner, and for the tests.

-- History by day (UTC): makes the days from today to `ahead` days on, and says how many it made. Two callers at once
-- are harmless: the lock lets one of them do it.
CREATE FUNCTION history_create(now timestamptz, ahead integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    history text;
    day text;
    midnight timestamptz;
    made integer := 0;
BEGIN
    PERFORM FROM locks WHERE name = 'history_create' FOR UPDATE;
    FOREACH history IN ARRAY ARRAY['attempts', 'archive'] LOOP
        FOR d IN -1..ahead LOOP
            midnight := date_trunc('day', now, 'UTC') + make_interval(hours => 24 * d);  -- UTC days have 24 hours
            CONTINUE WHEN to_regclass(format('pillarbox.%s_%s', history, to_char(midnight AT TIME ZONE 'UTC', 'YYYYMMDD'))) IS NOT NULL;
            day := history || '_' || to_char(midnight AT TIME ZONE 'UTC', 'YYYYMMDD');
            -- Made apart and attached: that locks history against DDL only, while PARTITION OF would wait for every
            -- reader, and every writer behind it.
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', day, history);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                history, day, midnight, midnight + interval '24 hours');
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

CREATE FUNCTION history_create(ahead integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF ahead > 366 THEN
        RAISE EXCEPTION 'days ahead: %', ahead USING ERRCODE = 'invalid_parameter_value', HINT = 'at most 366';
    END IF;
    RETURN history_create(now(), ahead);
END $$;

-- Drops the days of attempts that ended more than `keep` ago, and those of the archive that also ended more than `find`
-- ago; at most one of each table a call, because it needs an exclusive lock, and gives up after lock_timeout rather than
-- make other sessions wait behind it.
CREATE FUNCTION maintain_history_drop(at timestamptz, keep interval, find interval) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    day regclass;
    dropped integer := 0;
BEGIN
    FOR day IN
        SELECT min(c.oid::regclass::text)::regclass
          FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent IN ('attempts'::regclass, 'archive'::regclass)
           AND c.relname ~ E'_\\d{8}$'
           AND to_date(right(c.relname, 8), 'YYYYMMDD') + 1
               <= CASE i.inhparent WHEN 'archive'::regclass THEN least(at - keep, at - find) ELSE at - keep END AT TIME ZONE 'UTC'
         GROUP BY i.inhparent
    LOOP
        EXECUTE format('DROP TABLE %s', day);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;

CREATE FUNCTION maintain_history_drop(keep interval, find interval) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp
AS $$ SELECT maintain_history_drop(now(), kept(keep), kept(find)) WHERE operator_checked() $$;

-- Drops one day of history if it ended more than `keep` ago and holds exactly `expected` rows; says whether it did.
-- Only writers of that day wait for the counting, so that no late row is lost between it and the drop. Gives up after
-- lock_timeout rather than make other sessions wait behind it.
CREATE FUNCTION history_drop_if_counted(history text, day date, expected bigint, at timestamptz, keep interval)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    leaf regclass := (SELECT c.oid FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                       WHERE i.inhparent IN ('attempts'::regclass, 'archive'::regclass)
                         AND c.relname = history || '_' || to_char(day, 'YYYYMMDD'));
    counted bigint;
BEGIN
    IF leaf IS NULL OR day + 1 > (at - keep) AT TIME ZONE 'UTC' THEN
        RETURN false;
    END IF;
    EXECUTE format('LOCK TABLE %s IN SHARE MODE', leaf);
    EXECUTE format('SELECT count(*) FROM %s', leaf) INTO counted;
    IF counted <> expected THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %s', leaf);
    RETURN true;
END $$;

CREATE FUNCTION history_drop_if_counted(history text, day date, expected bigint, keep interval) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT history_drop_if_counted(history, day, expected, now(), kept(keep)) WHERE operator_checked()
$$;
