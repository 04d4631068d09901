-- Tokens: the right to activate an account or to recover its password, once, for a while.
CREATE TYPE token_action AS ENUM (
    'activation',
    'password_recovery'
);

-- 32 octets that cannot be guessed: 366 bits of PostgreSQL's strong random source, hashed. Needs no extension.
CREATE FUNCTION token_secret() RETURNS bytea LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    SELECT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
$$;

-- Five digits of the same source, each code as likely as any other: 48 random bits, whose remainder favours none by more
-- than one in a thousand million.
CREATE FUNCTION token_code() RETURNS text LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    SELECT lpad(((('x' || right(gen_random_uuid()::text, 12))::bit(48)::bigint) % 100000)::text, 5, '0')
$$;

CREATE TABLE tokens (
    id           BIGSERIAL PRIMARY KEY,
    action       token_action NOT NULL,
    secret       BYTEA DEFAULT token_secret() UNIQUE NOT NULL,
    code         VARCHAR(5) DEFAULT token_code() NOT NULL,
    account      BIGINT NOT NULL,
    expires_at   INTEGER DEFAULT EXTRACT(EPOCH FROM NOW() + INTERVAL '15 minute') NOT NULL,
    consumed_at  INTEGER,
    created_at   INTEGER DEFAULT EXTRACT(EPOCH FROM NOW()) NOT NULL,
    attempts     INTEGER DEFAULT 0 NOT NULL,
    collected_at INTEGER,

    CONSTRAINT tokens_secret_length CHECK (octet_length(secret) = 32),
    CONSTRAINT tokens_code_form CHECK (code ~ '^[0-9]{5}$'),
    CONSTRAINT tokens_attempts_limit CHECK (attempts BETWEEN 0 AND 5),
    FOREIGN KEY (account) REFERENCES accounts (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX tokens_account ON tokens (account, action, id);
-- What collectors look for. Not by a cursor over ids, which are not in the order of commits: a token that is committed
-- late has a lower id than one that was collected before.
CREATE INDEX tokens_to_collect ON tokens (action, expires_at, id) WHERE collected_at IS NULL AND consumed_at IS NULL;

-- mailroom's cursor, so that its own collector runs on these tables too. Ours marks each token, and does not use it.
CREATE TYPE job_type AS ENUM (
    'mailroom'
);
CREATE TABLE jobs (
    job_type job_type PRIMARY KEY,
    last_seq BIGINT
);
INSERT INTO jobs (last_seq, job_type) VALUES (0, 'mailroom');

-- The state of an account in which a token of this action is sent, and may be consumed.
CREATE FUNCTION token_needs(action token_action) RETURNS account_status LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT CASE action WHEN 'activation' THEN 'provisioned'::account_status ELSE 'active'::account_status END
$$;

-- A new token is unused, lasts 30 days at most, and fits the state of its account.
CREATE FUNCTION trg_before_token_insert() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    state account_status := (SELECT a.status FROM accounts a WHERE a.id = NEW.account);
BEGIN
    IF state IS NULL THEN
        RAISE EXCEPTION 'account % does not exist', NEW.account USING ERRCODE = 'foreign_key_violation';
    ELSIF state <> token_needs(NEW.action) THEN
        RAISE EXCEPTION 'account % is %, so it gets no token for %', NEW.account, state, NEW.action
            USING ERRCODE = 'check_violation', HINT = format('allowed: for %s accounts', token_needs(NEW.action));
    ELSIF NEW.attempts <> 0 OR num_nonnulls(NEW.consumed_at, NEW.collected_at) > 0 THEN
        RAISE EXCEPTION 'a new token is unused' USING ERRCODE = 'check_violation', HINT = 'allowed: attempts 0, consumed_at and collected_at NULL';
    ELSIF NEW.expires_at <= extract(epoch FROM now()) OR NEW.expires_at > extract(epoch FROM now() + INTERVAL '30 days') + 1 THEN
        RAISE EXCEPTION 'a token cannot expire at %', NEW.expires_at USING ERRCODE = 'check_violation', HINT = 'allowed: within the next 30 days';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER before_token_insert
    BEFORE INSERT ON tokens
    FOR EACH ROW
    EXECUTE FUNCTION trg_before_token_insert();

-- What may change of a token: it is consumed once while it is valid, wrong codes are counted, and it may expire earlier.
CREATE FUNCTION trg_before_token_change() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    state account_status;
BEGIN
    IF (NEW.id, NEW.action, NEW.secret, NEW.code, NEW.account, NEW.created_at)
       IS DISTINCT FROM (OLD.id, OLD.action, OLD.secret, OLD.code, OLD.account, OLD.created_at)
       OR NEW.expires_at > OLD.expires_at OR NEW.attempts < OLD.attempts OR NEW.collected_at IS DISTINCT FROM OLD.collected_at AND OLD.collected_at IS NOT NULL THEN
        RAISE EXCEPTION 'token % cannot change so', OLD.id
            USING ERRCODE = 'check_violation', HINT = 'allowed: consumed_at and collected_at once, more attempts, an earlier expires_at';
    END IF;
    IF NEW.consumed_at IS DISTINCT FROM OLD.consumed_at THEN
        state := (SELECT a.status FROM accounts a WHERE a.id = NEW.account);
        IF OLD.consumed_at IS NOT NULL THEN
            RAISE EXCEPTION 'token % is consumed already', OLD.id USING ERRCODE = 'check_violation';
        ELSIF OLD.expires_at <= extract(epoch FROM now()) THEN
            RAISE EXCEPTION 'token % has expired', OLD.id USING ERRCODE = 'check_violation';
        ELSIF OLD.attempts >= 5 THEN
            RAISE EXCEPTION 'token % had too many wrong codes', OLD.id USING ERRCODE = 'check_violation';
        ELSIF state IS DISTINCT FROM token_needs(OLD.action) THEN
            RAISE EXCEPTION 'token % is for %, and account % is %', OLD.id, OLD.action, OLD.account, state USING ERRCODE = 'check_violation';
        END IF;
        NEW.consumed_at := extract(epoch FROM now());
    END IF;
    RETURN NEW;
END $$;

-- A collector that marks a token for the first time changes nothing that needs looking at.
CREATE TRIGGER before_token_change
    BEFORE UPDATE ON tokens
    FOR EACH ROW
    WHEN ((OLD.id, OLD.action, OLD.secret, OLD.code, OLD.account, OLD.created_at, OLD.expires_at, OLD.consumed_at, OLD.attempts)
          IS DISTINCT FROM (NEW.id, NEW.action, NEW.secret, NEW.code, NEW.account, NEW.created_at, NEW.expires_at, NEW.consumed_at, NEW.attempts)
          OR OLD.collected_at IS NOT NULL)
    EXECUTE FUNCTION trg_before_token_change();

-- A consumed activation token activates its account; a consumed recovery token ends the others of its account.
CREATE FUNCTION trg_after_token_consumed() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.action = 'activation' THEN
        UPDATE accounts SET status = 'active' WHERE id = NEW.account AND status = 'provisioned';
    ELSE
        UPDATE tokens SET expires_at = floor(extract(epoch FROM now())) - 1
         WHERE account = NEW.account AND action = NEW.action AND consumed_at IS NULL AND expires_at > extract(epoch FROM now());
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER after_token_consumed
    AFTER UPDATE OF consumed_at ON tokens
    FOR EACH ROW
    WHEN (NEW.consumed_at IS NOT NULL AND OLD.consumed_at IS NULL)
    EXECUTE FUNCTION trg_after_token_consumed();

-- Wakes collectors. The payload is empty, as mailroom's: a notification is a hint, and the table is the truth. It is left
-- out once the queue of notifications is half full, which any login can bring about: a full one would refuse the COMMIT.
CREATE FUNCTION trg_after_token_inserted() RETURNS TRIGGER LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF pg_notification_queue_usage() < 0.5 THEN
        NOTIFY token_insert;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER after_token_inserted
    AFTER INSERT ON tokens
    FOR EACH STATEMENT
    EXECUTE FUNCTION trg_after_token_inserted();

-- In the transaction that provisions an account, its activation token. After the insert, so that an INSERT … ON CONFLICT
-- DO NOTHING leaves no token without an account.
CREATE FUNCTION trg_after_account_insert() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO tokens (account, action) VALUES (NEW.id, 'activation');
    RETURN NULL;
END $$;

CREATE TRIGGER after_account_insert
    AFTER INSERT ON accounts
    FOR EACH ROW
    WHEN (NEW.status = 'provisioned')
    EXECUTE FUNCTION trg_after_account_insert();

-- Tokens that were skipped while their account was suspended go out now, if they are still valid.
CREATE FUNCTION trg_after_account_unsuspended() RETURNS TRIGGER LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF pg_notification_queue_usage() < 0.5 THEN
        NOTIFY token_insert;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER after_account_unsuspended
    AFTER UPDATE ON accounts
    FOR EACH ROW
    WHEN (OLD.status = 'suspended' AND NEW.status <> 'suspended')
    EXECUTE FUNCTION trg_after_account_unsuspended();

-- What was sent to an address proves nothing about another one: with the address the tokens end, and an account that was
-- never activated gets a new one.
CREATE FUNCTION trg_after_account_email_change() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE tokens SET expires_at = floor(extract(epoch FROM now())) - 1
     WHERE account = NEW.id AND consumed_at IS NULL AND expires_at > extract(epoch FROM now());
    IF NEW.status = 'provisioned' THEN
        INSERT INTO tokens (account, action) VALUES (NEW.id, 'activation');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER after_account_email_change
    AFTER UPDATE ON accounts
    FOR EACH ROW
    WHEN (OLD.email <> NEW.email)
    EXECUTE FUNCTION trg_after_account_email_change();
