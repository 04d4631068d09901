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

-- Attempts by the minute of their result, seconds after it. Replaced as a whole for each minute, so nothing counts
-- twice.
CREATE TABLE report_minutes (
    minute   timestamptz NOT NULL,
    outcome  text        NOT NULL,
    attempts bigint      NOT NULL,
    seconds  float8      NOT NULL,         -- that these attempts took together
    PRIMARY KEY (minute, outcome)
);
