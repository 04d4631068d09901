-- The record of operators' and reviewers' changes of the queue and of settings, with the values that undo needs.
--
-- Functions record it, from the real rows, in the transaction that changes them: an operator's `undo` does what the record
-- says, so no role may write it by hand.
SET LOCAL search_path = pillarbox;

-- One row for each command that acted. `done` and `skipped` grow with each batch, in the batch's own transaction: after
-- a crash they say exactly what was done, and `finished` is not set.
CREATE TABLE audit (
    id        bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    ts        timestamptz NOT NULL DEFAULT now(),
    who       text        NOT NULL DEFAULT acting_for(),  -- on whose behalf: a principal, or the login itself
    operator  text,                                       -- whom the command took itself to be run by
    verb      text        NOT NULL CHECK (verb IN ('hold', 'release', 'copy', 'redirect', 'retry', 'delay', 'priority',
                                                   'move', 'bounce', 'delete', 'undo', 'rescan', 'retention', 'recover', 'settle', 'erase',
                                                   'suspend add', 'suspend remove', 'suppress add', 'suppress remove',
                                                   'schedule add', 'schedule remove', 'schedule enable', 'schedule disable',
                                                   'webhooks add', 'webhooks remove', 'webhooks enable', 'webhooks disable', 'webhooks rotate',
                                                   'block add', 'block remove', 'key add', 'key revoke',
                                                   'principal add', 'principal change', 'principal remove')),
    condition text        NOT NULL,                       -- as written; '' is every recipient, or every suspend
    argument  jsonb       NOT NULL DEFAULT '{}',          -- the time, priority, transport … that was given
    reason    text,
    undoes    bigint      REFERENCES audit,
    wanted    bigint      NOT NULL,                       -- recipients that fitted when it began, or rows of settings
    done      bigint      NOT NULL DEFAULT 0,
    skipped   bigint      NOT NULL DEFAULT 0,             -- in a worker's hand, or finished meanwhile; settings left as they are
    finished  timestamptz,
    undone    timestamptz,
    login     text        NOT NULL DEFAULT session_user   -- at PostgreSQL: no statement can write another's name
);
CREATE INDEX audit_ts ON audit (ts);

-- The earlier state of each recipient: status, next_retry, priority, transport, partition, quarantine.
CREATE TABLE audit_rows (
    audit__id    bigint NOT NULL REFERENCES audit ON DELETE CASCADE,
    queue__id    bigint NOT NULL,
    messages__id uuid   NOT NULL,
    before       jsonb  NOT NULL,
    changed      boolean NOT NULL DEFAULT true,  -- once its recipient was really changed, which audit_add finds out
    PRIMARY KEY (audit__id, queue__id)
);
CREATE INDEX audit_rows_messages__id ON audit_rows (messages__id);

-- The rows of suspends, suppressions, schedules, webhooks, blocked senders, API keys and principals that a command changed: as each was before (NULL: it was added) and after
-- (NULL: it was removed). The content of a schedule, which may be long, is kept apart, and only where the schedule is gone.
-- Without a foreign key, whose check would cost as much as the row; settings_changed asks once for a statement, and
-- audit_gone deletes them.
CREATE TABLE audit_settings (
    audit__id bigint NOT NULL,                   -- the command
    noun      text   NOT NULL,                   -- the table
    key       text   NOT NULL,                   -- its primary key
    before    jsonb,
    after     jsonb,
    content   bytea,
    PRIMARY KEY (audit__id, noun, key),
    CONSTRAINT audit_settings_changed CHECK (before IS DISTINCT FROM after)
);

-- What commands changed goes with them.
CREATE FUNCTION audit_gone() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    DELETE FROM audit_settings s USING gone g WHERE s.audit__id = g.id;
    RETURN NULL;
END $$;
CREATE TRIGGER audit_gone AFTER DELETE ON audit REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION audit_gone();

-- The commands that may be deleted: begun before a time, and finished or given up; not one that a kept one undid.
CREATE FUNCTION audit_older(before timestamptz) RETURNS SETOF audit
LANGUAGE sql STABLE SET search_path = pillarbox, pg_temp AS $$
    SELECT a.* FROM audit a
     WHERE a.ts < before AND (a.finished IS NOT NULL OR a.ts < now() - interval '1 day')
       AND NOT EXISTS (SELECT FROM audit u
                        WHERE u.undoes = a.id AND NOT (u.ts < before AND (u.finished IS NOT NULL OR u.ts < now() - interval '1 day')));
$$;

-- The command of this principal or login that is not finished; others are refused.
CREATE FUNCTION audit_open(audit bigint) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM audit a WHERE a.id = audit_open.audit AND a.who = acting_for() AND a.finished IS NULL) THEN
        RAISE EXCEPTION 'audit % is not an unfinished command of %', audit_open.audit, acting_for() USING ERRCODE = 'insufficient_privilege';
    END IF;
END $$;

-- Whether this is a release, a deletion, a block or the end of one that was done in the name of whom this transaction acts for, who may take it back.
CREATE FUNCTION audit_own_decision(audit bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT EXISTS (SELECT FROM audit a WHERE a.id = audit_own_decision.audit AND a.verb IN ('release', 'delete', 'block add', 'block remove') AND a.who = acted_for())
$$;

-- Whether a recipient was released by a command that whom this transaction acts for is undoing, out of a quarantine that it reviews.
CREATE FUNCTION audit_takes_back(recipient bigint, message uuid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT EXISTS (SELECT FROM audit u JOIN audit_rows r ON r.audit__id = u.undoes
                    WHERE u.verb = 'undo' AND u.finished IS NULL AND u.who = acted_for() AND audit_own_decision(u.undoes)
                      AND r.queue__id = recipient AND r.messages__id = message AND r.changed AND r.before->>'status' = 'HOLD'
                      AND may_review(r.before->>'quarantine'))
$$;

-- The table of settings that a command changes, by the first word of its verb, an undo what the undone command changed; NULL:
-- it changes mail.
CREATE FUNCTION audit_changes(verb text, undoes bigint) RETURNS regclass
LANGUAGE sql STABLE SET search_path = pillarbox, pg_temp AS $$
    SELECT CASE split_part(CASE WHEN verb = 'undo' THEN (SELECT a.verb FROM audit a WHERE a.id = audit_changes.undoes) ELSE verb END, ' ', 1)
           WHEN 'suspend' THEN regclass 'suspends' WHEN 'suppress' THEN regclass 'suppressions' WHEN 'schedule' THEN regclass 'schedules'
           WHEN 'webhooks' THEN to_regclass('webhooks') WHEN 'block' THEN to_regclass('blocked_senders') WHEN 'key' THEN to_regclass('api_keys')
           WHEN 'principal' THEN regclass 'principals' END
$$;

-- Whose rights PostgreSQL asks for in this session: the role that its login has taken (SET ROLE), or the login's.
CREATE FUNCTION rights_of() RETURNS name LANGUAGE sql STABLE SET search_path = pillarbox, pg_temp AS $$
    SELECT CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role')::name END
$$;

-- Who may change settings in this table on somebody's behalf: keys and principals are for admins, blocks for reviewers too.
CREATE FUNCTION audit_changers(settings regclass) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pillarbox, pg_temp AS $$
    SELECT CASE WHEN settings IN (to_regclass('api_keys'), to_regclass('principals')) THEN '{admin}'::text[]
                WHEN settings = to_regclass('blocked_senders') THEN '{reviewer,operator,admin}' ELSE '{operator,admin}' END
$$;

-- Whether this session may change settings in this table. A principal needs one of the roles above. A login without a principal owns
-- the queue or has the right to DELETE; for blocked senders, which functions change, the right to SELECT is enough.
CREATE FUNCTION audit_may_change(settings regclass) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pillarbox, pg_temp AS $$
    SELECT coalesce(acting_has(audit_changers(settings)),
                    is_operator() OR has_table_privilege(rights_of(), settings, CASE WHEN settings = to_regclass('blocked_senders') THEN 'SELECT' ELSE 'DELETE' END))
$$;

-- Notes that a command begins; the number of its row. Reviewers decide about held mail, and undo their own releases and deletions alone. A command
-- that changes settings is open until its transaction ends: triggers keep what it changes. Of two that undo the same, one waits.
CREATE FUNCTION audit_begin(operator text, verb text, condition text, argument jsonb, reason text,
                            undoes bigint, wanted bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    made bigint;
    settings regclass := audit_changes(verb, undoes);
BEGIN
    IF settings IS NOT NULL THEN
        IF NOT audit_may_change(settings) OR (undoes IS NOT NULL) <> (verb = 'undo') THEN
            RAISE EXCEPTION '% may not %', to_json(acting_for()),
                CASE settings WHEN regclass 'principals' THEN 'change principals: only admins may' WHEN to_regclass('api_keys') THEN 'change API keys: only admins may'
                WHEN to_regclass('blocked_senders') THEN 'block senders: only reviewers and operators may' ELSE verb || ': only operators may' END
                USING ERRCODE = 'insufficient_privilege', HINT = 'operators are members of the role that owns the queue, and principals with the role operator';
        ELSIF verb = 'undo' AND settings = to_regclass('blocked_senders') AND NOT is_operator() AND NOT audit_own_decision(undoes) THEN
            RAISE EXCEPTION '% may not undo a block of somebody else: only operators may', to_json(acting_for()) USING ERRCODE = 'insufficient_privilege';
        END IF;
        PERFORM FROM audit a WHERE a.id = audit_begin.undoes FOR UPDATE;
    ELSIF NOT is_operator() AND (verb NOT IN ('release', 'copy', 'redirect', 'bounce', 'delete', 'rescan', 'retention') OR undoes IS NOT NULL)
       AND NOT (verb = 'undo' AND audit_own_decision(undoes)) THEN
        RAISE EXCEPTION '% may not %: only operators may', acting_for(), verb
            USING ERRCODE = 'insufficient_privilege', HINT = 'operators are members of the role that owns the queue, and principals with the role operator';
    ELSIF NOT coalesce(acting_has('{reviewer,operator,admin}'), true)
       OR NOT is_operator() AND NOT has_column_privilege(rights_of(), 'pillarbox.queue', 'status', 'UPDATE') THEN
        RAISE EXCEPTION '% may not %: only reviewers and operators may', acting_for(), verb USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO audit AS a (who, operator, verb, condition, argument, reason, undoes, wanted)
    VALUES (acting_for(), audit_begin.operator, audit_begin.verb, audit_begin.condition, coalesce(audit_begin.argument, '{}'),
            audit_begin.reason, audit_begin.undoes, audit_begin.wanted)
    RETURNING a.id INTO made;
    IF settings IS NOT NULL THEN
        PERFORM set_config('pillarbox.command', made::text, true);
    END IF;
    RETURN made;
END $$;

-- Locks these recipients and keeps their state before this transaction changes them; how many.
CREATE FUNCTION audit_remember(audit bigint, ids bigint[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    kept bigint;
BEGIN
    PERFORM audit_open(audit_remember.audit);
    WITH locked AS MATERIALIZED (
        SELECT q.* FROM queue q WHERE q.id = ANY (ids) ORDER BY q.id FOR NO KEY UPDATE
    ), remembered AS (
        INSERT INTO audit_rows (audit__id, queue__id, messages__id, changed, before)
        SELECT audit_remember.audit, q.id, q.messages__id, false,
               jsonb_build_object('status', q.status, 'next_retry', q.next_retry, 'tries', q.retry_count, 'priority', q.priority,
                                  'transport', q.transportid, 'partition', q.metadata->>'_partid', 'quarantine', q.metadata->>'_quarantineid',
                                  'reason', q.metadata->>'_holdreason')
          FROM locked q RETURNING 1
    )
    SELECT count(*) INTO kept FROM remembered;
    RETURN kept;
END $$;

-- Adds a batch to the record of its command: `seen` recipients, of which those among `ids` count as done that this very
-- transaction kept and then changed; how many. A copy leaves the held recipient as it is, and a settled one has left the queue.
CREATE FUNCTION audit_add(audit bigint, ids bigint[], seen bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    ours xid := pg_current_xact_id()::xid;
    trusted boolean := is_operator();
    verb text := (SELECT a.verb FROM audit a WHERE a.id = audit_add.audit);
    counted bigint;
BEGIN
    PERFORM audit_open(audit_add.audit);
    UPDATE audit_rows r SET changed = true
      FROM unnest(ids) AS i(id) LEFT JOIN queue q ON q.id = i.id
     WHERE r.audit__id = audit_add.audit AND r.queue__id = i.id AND NOT r.changed AND r.xmin = ours
       AND CASE WHEN q.id IS NULL THEN verb = 'settle' AND trusted
                ELSE verb = 'copy' OR q.xmin = ours AND (trusted OR q.status::text <> r.before->>'status') END;
    GET DIAGNOSTICS counted = ROW_COUNT;
    UPDATE audit a SET done = a.done + counted, skipped = a.skipped + greatest(seen - counted, 0) WHERE a.id = audit_add.audit;
    RETURN counted;
END $$;

-- A row of settings as it is kept: without content, which may be long, and without what proves who somebody is, of which a digest
-- says that it was changed.
CREATE FUNCTION settings_row(kept jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT kept - '{content,digest,argon2,scram}'::text[]
        || CASE WHEN coalesce(kept->>'argon2', kept->>'scram') IS NULL THEN '{}'
                ELSE jsonb_build_object('password', left(encode(sha256(convert_to(concat_ws(' ', kept->>'argon2', kept->>'scram'), 'UTF8')), 'hex'), 12)) END
$$;

-- Keeps the rows that a statement of the open command changes, before and after: once for the statement, since most of the cost
-- of a trigger for each row would be its calls. The keys of a principal go with it.
CREATE FUNCTION settings_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    command bigint := current_setting('pillarbox.command')::bigint;
    changes regclass := (SELECT audit_changes(a.verb, a.undoes) FROM audit a WHERE a.id = command);
    name text := TG_ARGV[0];
BEGIN
    PERFORM audit_open(command);
    IF TG_RELID IS DISTINCT FROM changes::oid AND NOT (changes = regclass 'principals' AND TG_TABLE_NAME = 'api_keys' AND TG_OP = 'DELETE') THEN
        RAISE EXCEPTION 'audit % does not change %', command, TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
    END IF;
    CASE TG_OP
    WHEN 'INSERT' THEN
        INSERT INTO audit_settings (audit__id, noun, key, after)
        SELECT command, TG_TABLE_NAME, n.row->>name, n.row
          FROM (SELECT settings_row(to_jsonb(rows_after)) AS row FROM rows_after) n;
    WHEN 'UPDATE' THEN
        INSERT INTO audit_settings (audit__id, noun, key, before, after)
        SELECT command, TG_TABLE_NAME, coalesce(o.row, n.row)->>name, o.row, n.row
          FROM (SELECT settings_row(to_jsonb(rows_before)) AS row FROM rows_before) o
          FULL JOIN (SELECT settings_row(to_jsonb(rows_after)) AS row FROM rows_after) n
            ON n.row->>name = o.row->>name
         WHERE o.row IS DISTINCT FROM n.row;
    WHEN 'DELETE' THEN
        INSERT INTO audit_settings (audit__id, noun, key, before)
        SELECT command, TG_TABLE_NAME, o.row->>name, o.row
          FROM (SELECT settings_row(to_jsonb(rows_before)) AS row FROM rows_before) o;
        IF TG_TABLE_NAME = 'schedules' THEN
            UPDATE audit_settings s SET content = o.content FROM rows_before o WHERE s.audit__id = command AND s.noun = 'schedules' AND s.key = o.id;
        END IF;
    END CASE;
    RETURN NULL;
END $$;

-- Has what commands change in a table kept; `name` is the column that its rows are known by.
CREATE FUNCTION settings_keep(settings regclass, name text) RETURNS void LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    each record;
BEGIN
    FOR each IN SELECT * FROM (VALUES ('insert', 'NEW TABLE AS rows_after'), ('update', 'OLD TABLE AS rows_before NEW TABLE AS rows_after'),
                                      ('delete', 'OLD TABLE AS rows_before')) AS v (event, tables)
    LOOP
        EXECUTE format($sql$CREATE TRIGGER %I AFTER %s ON %s REFERENCING %s FOR EACH STATEMENT
                            WHEN (coalesce(current_setting('pillarbox.command', true), '') <> '') EXECUTE FUNCTION settings_changed(%L)$sql$,
                       format('settings_%s', each.event), each.event, settings, each.tables, name);
    END LOOP;
END $$;
SELECT settings_keep('suspends', 'id'), settings_keep('suppressions', 'target'), settings_keep('schedules', 'id'), settings_keep('principals', 'name');

-- Notes that a command came to its end, and that what it undid is undone.
CREATE FUNCTION audit_finish(audit bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    changed bigint := (SELECT count(*) FROM audit_settings s WHERE s.audit__id = audit_finish.audit);
BEGIN
    PERFORM audit_open(audit_finish.audit);
    UPDATE audit a SET finished = now() WHERE a.id = audit_finish.audit;
    UPDATE audit a SET done = changed, wanted = greatest(a.wanted, changed), skipped = greatest(a.wanted - changed, 0)
     WHERE a.id = audit_finish.audit AND audit_changes(a.verb, a.undoes) IS NOT NULL;
    UPDATE audit a SET undone = now() FROM audit mine WHERE mine.id = audit_finish.audit AND a.id = mine.undoes;
END $$;

-- Roles with granted rights read the whole record; the owner of the queue is not restricted.
ALTER TABLE audit ENABLE ROW LEVEL SECURITY;
CREATE POLICY audit_read ON audit FOR SELECT USING (true);
ALTER TABLE audit_rows ENABLE ROW LEVEL SECURITY;
CREATE POLICY audit_rows_read ON audit_rows FOR SELECT USING (true);
ALTER TABLE audit_settings ENABLE ROW LEVEL SECURITY;
CREATE POLICY audit_settings_read ON audit_settings FOR SELECT USING (true);
