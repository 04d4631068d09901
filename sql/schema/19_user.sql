-- Users that may submit mail, where smtpd.yaml says `authentication.source: table`. Only smtpd reads the verifiers of
-- passwords.
SET LOCAL search_path = pillarbox;

CREATE TABLE users (
    name         text PRIMARY KEY,                     -- as SASLprep spells it (RFC 4013)
    argon2       text,                                 -- for PLAIN and LOGIN
    scram        text,                                 -- for SCRAM-SHA-256, as RFC 5803 and PostgreSQL write it
    disabled     boolean     NOT NULL DEFAULT false,
    senders      text[]      NOT NULL DEFAULT '{}',    -- addresses, domains, *.domains, '' the null sender; none is any
    messages     integer,                              -- in an hour
    recipients   integer,                              -- in an hour
    partitionid  text,
    transportid  text,
    quarantineid text,                                 -- the user's mail is held under it
    made         timestamptz NOT NULL DEFAULT now(),
    changed      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT users_name CHECK (name <> ''),
    CONSTRAINT users_argon2 CHECK (argon2 LIKE '$argon2%'),
    CONSTRAINT users_scram CHECK (
        scram ~ '^SCRAM-SHA-256\$\d{4,8}:[A-Za-z0-9+/=]+\$[A-Za-z0-9+/]{43}=:[A-Za-z0-9+/]{43}=$'),
    CONSTRAINT users_senders CHECK (array_position(senders, NULL) IS NULL),
    CONSTRAINT users_messages CHECK (messages > 0),
    CONSTRAINT users_recipients CHECK (recipients > 0),
    CONSTRAINT users_partitionid CHECK (partitionid ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$'),
    CONSTRAINT users_transportid CHECK (transportid ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$'),
    CONSTRAINT users_quarantineid CHECK (quarantineid ~ '^[A-Za-z0-9._:-]{1,64}$')
);
