-- What applications ask for: mail for recovery, activation mail once more, and the consumption of a token.

-- An account and a token that belong to no person. A request that sends nothing writes such a token, so that it takes as long as
-- one that does: a stranger cannot find out which addresses have an account.
CREATE TABLE decoy_accounts (
    id BIGINT PRIMARY KEY
);
INSERT INTO decoy_accounts SELECT generate_series(0, 63);
CREATE SEQUENCE decoys_id_seq;
CREATE TABLE decoys (
    LIKE tokens INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES,
    FOREIGN KEY (account) REFERENCES decoy_accounts (id) DEFERRABLE INITIALLY DEFERRED
);
ALTER TABLE decoys ALTER COLUMN id SET DEFAULT nextval('decoys_id_seq');

CREATE TRIGGER after_decoy_inserted
    AFTER INSERT ON decoys
    FOR EACH STATEMENT
    EXECUTE FUNCTION trg_after_token_inserted();

-- As before_token_insert, for a decoy: the same work.
CREATE FUNCTION trg_before_decoy_insert() RETURNS TRIGGER LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    known boolean := EXISTS (SELECT FROM decoy_accounts a WHERE a.id = NEW.account);
BEGIN
    IF NOT known OR token_needs(NEW.action) IS NULL OR NEW.expires_at <= extract(epoch FROM now()) THEN
        RAISE EXCEPTION 'not a decoy' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER before_decoy_insert
    BEFORE INSERT ON decoys
    FOR EACH ROW
    EXECUTE FUNCTION trg_before_decoy_insert();

-- Makes a token of this action if the account with this address is in the right state and got none in the last minute.
-- The answer is the same in any case, and takes as long.
CREATE FUNCTION token_request(email text, action token_action) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    found_account bigint;
BEGIN
    SELECT a.id INTO found_account FROM accounts a
     WHERE a.email = token_request.email AND a.status = token_needs(token_request.action)
       AND NOT EXISTS (SELECT FROM tokens t WHERE t.account = a.id AND t.action = token_request.action
                                              AND t.created_at > extract(epoch FROM now()) - 60 AND t.consumed_at IS NULL
                                              AND t.expires_at > extract(epoch FROM now()));
    IF found_account IS NOT NULL THEN
        INSERT INTO tokens (account, action) VALUES (found_account, token_request.action);
    ELSE
        INSERT INTO decoys (account, action) VALUES (get_byte(uuid_send(gen_random_uuid()), 0) & 63, token_request.action);
    END IF;
END $$;

-- Asks for mail with which the password of the account with this address is recovered.
CREATE FUNCTION request_recovery(email text) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT
AS $$ SELECT token_request(email, 'password_recovery') $$;

-- Asks for activation mail once more, for an account that was never activated.
CREATE FUNCTION request_activation(email text) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT
AS $$ SELECT token_request(email, 'activation') $$;

-- Consumes the token with this secret: its account, or NULL where it is refused: unknown, of another action, expired,
-- consumed, for an account in another state, or with a wrong code. Recovery needs the code; five wrong codes end the
-- token, and twenty in a day all recovery of the account for that day.
CREATE FUNCTION consume_token(action token_action, secret bytea, code text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    token tokens;
    asked ALIAS FOR action;
    given ALIAS FOR code;
BEGIN
    SELECT t.* INTO token FROM tokens t WHERE t.secret = consume_token.secret AND t.action = asked;
    IF token.id IS NULL THEN
        RETURN NULL;
    END IF;
    -- The account before the token, as everywhere, and then the token as it is now.
    PERFORM FROM accounts a WHERE a.id = token.account AND a.status = token_needs(asked) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT t.* INTO token FROM tokens t WHERE t.id = token.id FOR NO KEY UPDATE;
    IF token.consumed_at IS NOT NULL OR token.expires_at <= extract(epoch FROM now()) OR token.attempts >= 5
       OR (SELECT coalesce(sum(t.attempts), 0) >= 20 FROM tokens t
            WHERE t.account = token.account AND t.action = asked AND t.created_at > extract(epoch FROM now()) - 86400) THEN
        RETURN NULL;
    END IF;
    IF given IS DISTINCT FROM token.code AND (asked = 'password_recovery' OR given IS NOT NULL) THEN
        UPDATE tokens t SET attempts = t.attempts + 1 WHERE t.id = token.id;
        RETURN NULL;
    END IF;
    UPDATE tokens t SET consumed_at = extract(epoch FROM now()) WHERE t.id = token.id;
    RETURN token.account;
END $$;

-- Consumes the newest valid token of the account with this address by its code alone, which a person types; else as
-- consume_token. An unknown address takes as long as a wrong code.
CREATE FUNCTION consume_code(action token_action, email text, code text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    asked ALIAS FOR action;
    key bytea;
BEGIN
    SELECT t.secret INTO key FROM accounts a JOIN tokens t ON t.account = a.id
     WHERE a.email = consume_code.email AND t.action = asked AND t.consumed_at IS NULL
       AND t.expires_at > extract(epoch FROM now()) AND t.attempts < 5
     ORDER BY t.id DESC LIMIT 1;
    IF key IS NULL THEN
        INSERT INTO decoys (account, action) VALUES (get_byte(uuid_send(gen_random_uuid()), 0) & 63, asked);
        RETURN NULL;
    END IF;
    RETURN consume_token(asked, key, coalesce(code, ''));
END $$;

-- Forgets tokens that expired longer ago than `keep`, oldest first, at most `batch`, and all expired decoys; how many
-- tokens.
CREATE FUNCTION tokens_forget(keep interval, batch integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    forgotten integer;
BEGIN
    DELETE FROM decoys d WHERE d.id = ANY (ARRAY(SELECT e.id FROM decoys e WHERE e.expires_at < extract(epoch FROM now())
                                                  ORDER BY e.id LIMIT batch FOR UPDATE SKIP LOCKED));
    DELETE FROM tokens t WHERE t.id = ANY (ARRAY(
        SELECT o.id FROM (SELECT f.id, f.expires_at FROM tokens f ORDER BY f.id LIMIT batch) AS o
         WHERE o.expires_at < extract(epoch FROM now() - keep)));
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END $$;

REVOKE ALL ON FUNCTION token_request, request_recovery, request_activation, consume_token, consume_code, tokens_forget FROM PUBLIC;
