-- Accounts: who has one, in which state it is, and since when. Names, columns and epoch seconds are mailroom's.
CREATE TABLE account_migrations (
    number  integer PRIMARY KEY,
    name    text NOT NULL,
    applied timestamptz NOT NULL DEFAULT now()
);

-- Names this installation in keys of idempotency, so that the tokens of two installations with one queue stay apart.
CREATE TABLE account_settings (
    installation uuid NOT NULL DEFAULT gen_random_uuid()
);
CREATE UNIQUE INDEX account_settings_one ON account_settings ((true));
INSERT INTO account_settings DEFAULT VALUES;

CREATE TYPE account_status AS ENUM (
    'provisioned',
    'active',
    'suspended'
);

-- The legal changes of accounts.status; sql/accounts/README.md says who makes each.
CREATE TABLE account_transitions (
    before account_status NOT NULL,
    after  account_status NOT NULL,
    PRIMARY KEY (before, after)
);
INSERT INTO account_transitions (before, after) VALUES
    ('provisioned', 'active'),
    ('provisioned', 'suspended'),
    ('active', 'suspended'),
    ('suspended', 'active'),
    ('suspended', 'provisioned');

CREATE TABLE accounts (
    id                  BIGSERIAL PRIMARY KEY,
    email               VARCHAR(254) UNIQUE NOT NULL,
    status              account_status DEFAULT 'provisioned' NOT NULL,
    login               VARCHAR(254) UNIQUE NOT NULL,
    created_at          INTEGER DEFAULT EXTRACT(EPOCH FROM NOW()) NOT NULL,
    status_changed_at   INTEGER,
    activated_at        INTEGER,
    suspended_at        INTEGER,
    unsuspended_at      INTEGER,
    language            VARCHAR(35),
    -- A line of the collector separates its values with commas, and a header field is one line.
    CONSTRAINT accounts_email_form CHECK (email ~ E'^[^\\s,<>@\\x01-\\x1f\\x7f-\\x9f\\u2028\\u2029]+@[^\\s,<>@\\x01-\\x1f\\x7f-\\x9f\\u2028\\u2029]+$'),
    CONSTRAINT accounts_login_form CHECK (login ~ E'^[^,\\x01-\\x1f\\x7f-\\x9f\\u2028\\u2029]+$'),
    CONSTRAINT accounts_language_form CHECK (language ~ '^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$'),
    CONSTRAINT accounts_status_times CHECK (
        CASE status
            WHEN 'provisioned' THEN activated_at IS NULL AND suspended_at IS NULL
            WHEN 'active' THEN activated_at IS NOT NULL AND suspended_at IS NULL
            ELSE suspended_at IS NOT NULL
        END
    )
);

-- A new account is provisioned, or active if its address was verified elsewhere.
CREATE FUNCTION trg_before_account_insert() RETURNS TRIGGER LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ts integer := extract(epoch FROM now());
BEGIN
    IF NEW.status = 'suspended' THEN
        RAISE EXCEPTION 'a new account cannot be suspended' USING ERRCODE = 'check_violation', HINT = 'allowed: provisioned, active';
    END IF;
    IF num_nonnulls(NEW.status_changed_at, NEW.suspended_at, NEW.unsuspended_at) > 0 OR NEW.activated_at > ts THEN
        RAISE EXCEPTION 'the database writes the times of an account'
            USING ERRCODE = 'check_violation', HINT = 'allowed for a new one: created_at, and activated_at in the past if it is active';
    END IF;
    IF NEW.status = 'active' THEN
        NEW.activated_at := coalesce(NEW.activated_at, ts);
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER before_account_insert
    BEFORE INSERT ON accounts
    FOR EACH ROW
    EXECUTE FUNCTION trg_before_account_insert();

-- Refuses each change that account_transitions does not have, and writes the times of the others.
CREATE FUNCTION trg_before_account_status_change() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    ts integer := extract(epoch FROM now());
BEGIN
    IF (NEW.id, NEW.created_at, NEW.status_changed_at, NEW.activated_at, NEW.suspended_at, NEW.unsuspended_at)
       IS DISTINCT FROM (OLD.id, OLD.created_at, OLD.status_changed_at, OLD.activated_at, OLD.suspended_at, OLD.unsuspended_at) THEN
        RAISE EXCEPTION 'the database writes the id and the times of account %', OLD.id
            USING ERRCODE = 'check_violation', HINT = 'allowed: a change of status, which writes them';
    END IF;
    IF NEW.status = OLD.status THEN
        RETURN NEW;
    END IF;
    IF NOT EXISTS (SELECT FROM account_transitions t WHERE t.before = OLD.status AND t.after = NEW.status)
       OR (NEW.status = 'provisioned' AND OLD.activated_at IS NOT NULL) THEN
        RAISE EXCEPTION 'account % cannot change from % to %', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation',
                  HINT = (SELECT 'allowed: ' || string_agg(t.after::text, ', ' ORDER BY t.after) FROM account_transitions t
                           WHERE t.before = OLD.status AND (t.after <> 'provisioned' OR OLD.activated_at IS NULL));
    END IF;
    NEW.status_changed_at := ts;
    IF NEW.status = 'suspended' THEN
        NEW.suspended_at := ts;
        NEW.unsuspended_at := NULL;
    ELSIF OLD.status = 'suspended' THEN
        NEW.unsuspended_at := ts;
        NEW.suspended_at := NULL;
        IF OLD.activated_at IS NULL THEN
            NEW.status := 'provisioned';  -- an address that was never proven stays unproven
        END IF;
    ELSE
        NEW.activated_at := ts;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER before_account_status_change
    BEFORE UPDATE ON accounts
    FOR EACH ROW
    EXECUTE FUNCTION trg_before_account_status_change();
