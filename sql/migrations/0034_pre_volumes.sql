-- How much room PostgreSQL's volumes have, as somebody on the server's host reports it (`pillarbox volumes`), for smtpd on others.
SET LOCAL search_path = pillarbox;

CREATE TABLE volumes (
    host text        NOT NULL,
    path text        NOT NULL,
    free bigint      NOT NULL CHECK (free >= 0),      -- octets that the server's account may still write
    size bigint      NOT NULL CHECK (size >= 0),
    seen timestamptz NOT NULL,
    beat interval    NOT NULL CHECK (beat > interval '0'),  -- how often it is reported
    PRIMARY KEY (host, path)
) WITH (fillfactor = 50);

-- As workers_seen: five beats without a report, and nobody knows how much room there is.
CREATE VIEW volumes_seen AS
SELECT v.*, v.seen > now() - 5 * v.beat AS fresh FROM volumes v;

-- Least privilege, as in roles.
DO $$
BEGIN
    IF to_regrole('pillarbox_smtpd') IS NOT NULL THEN
        GRANT SELECT ON volumes_seen TO pillarbox_smtpd;
    END IF;
    IF to_regrole('pillarbox_maintainer') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON volumes TO pillarbox_maintainer;
        GRANT SELECT ON volumes_seen TO pillarbox_maintainer;
    END IF;
END $$;
