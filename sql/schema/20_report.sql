-- Findings of reports, for the console and for queries in SQL; and figures by the minute.
SET LOCAL search_path = pillarbox;

-- One row for each section of a report. A report of the same period replaces the one before.
CREATE TABLE reports (
    since   timestamptz NOT NULL,
    until   timestamptz NOT NULL,
    section text        NOT NULL,          -- docs/reference/analyses.md
    made    timestamptz NOT NULL,
    origin  text        NOT NULL,          -- the lake or the database that was read
    more    boolean     NOT NULL,          -- there are more rows than are kept here
    columns jsonb       NOT NULL,          -- the names of the columns, in order
    rows    jsonb       NOT NULL,          -- an array of objects
    PRIMARY KEY (since, until, section),
    CONSTRAINT reports_period CHECK (since < until)
);

-- Attempts by the minute of their result, seconds after it. A figure is replaced as a whole, by the batches of a stream in
-- their order (report_streams), so nothing counts twice.
CREATE TABLE report_minutes (
    minute   timestamptz NOT NULL,
    outcome  text        NOT NULL,
    attempts bigint      NOT NULL,
    seconds  float8      NOT NULL,         -- that these attempts took together
    PRIMARY KEY (minute, outcome)
);

-- The last batch of each stream that is in report_minutes, written in the transaction of its figures.
CREATE TABLE report_streams (
    stream   uuid PRIMARY KEY,             -- the id that Spark gave it, which is kept in its checkpoint
    batch    bigint      NOT NULL,
    before   bigint,                       -- the batch before; the same where a batch came again
    at       timestamptz NOT NULL DEFAULT now()
);

-- What reports found that differs from the usual by more than chance: each once, whichever reports find it. Endpoints that want
-- report.alarm get it (22_webhook.sql). Nothing updates it; maintenance deletes what is older than keep.history.
CREATE TABLE report_alarms (
    id       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    alarm    uuid        NOT NULL DEFAULT gen_random_uuid(),
    xact     bigint      NOT NULL DEFAULT pg_current_xact_id()::text::bigint,  -- as in attempts
    made     timestamptz NOT NULL DEFAULT now(),
    kind     text        NOT NULL,         -- volume, provider, source
    subject  text        NOT NULL,         -- which provider or source address
    at       timestamptz NOT NULL,         -- the hour or the day that is unusual
    value    float8      NOT NULL,
    usual    float8      NOT NULL,
    score    float8      NOT NULL,         -- how many spreads away
    UNIQUE (kind, subject, at)
);
CREATE INDEX report_alarms_xact ON report_alarms (xact);
CREATE INDEX report_alarms_made ON report_alarms (made);
