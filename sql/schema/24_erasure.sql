-- Erasing a person: what names an address is deleted from the queue, from history and from what is beside them. Each step may
-- be repeated, and `pillarbox erase` repeats all of them after a crash. See ../README.md, "Erasing a person".
--
-- An address is given in parts: lower-case local-part, spellings of the domain, and a pattern that finds it in texts. It is
-- kept nowhere: of a person who was erased the hash remains, with whose secret an address can be compared but not read.
SET LOCAL search_path = pillarbox;

CREATE TABLE erasing_secret (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    secret   bytea   NOT NULL DEFAULT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
);
INSERT INTO erasing_secret DEFAULT VALUES;

-- The hash of an address as suppressions spell it. Hashed twice, so that nothing can be appended to it.
CREATE FUNCTION address_hash(target text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT 'erased:' || encode(sha256(s.secret || sha256(s.secret || convert_to(target, 'UTF8'))), 'hex') FROM erasing_secret s
$$;

-- One row for each person whose erasure began: of an audit row, whose condition is the hash. finding: what is to go is
-- collected, and nothing of history is changed; deleting: it is known, and is deleted; finished: nothing is left of it.
CREATE TABLE erasures (
    audit__id bigint PRIMARY KEY REFERENCES audit ON DELETE CASCADE,
    hash      text   NOT NULL,
    state     text   NOT NULL DEFAULT 'finding' CHECK (state IN ('finding', 'deleting', 'finished'))
);
CREATE UNIQUE INDEX erasures_unfinished ON erasures (hash) WHERE state <> 'finished';

-- The recipients to erase, by numbers alone: attempts have no address, so once the archive's rows are gone nothing else tells
-- which attempts are theirs. Empty once it is finished.
CREATE TABLE erasure_rows (
    audit__id    bigint NOT NULL REFERENCES erasures ON DELETE CASCADE,
    queue__id    bigint NOT NULL,
    messages__id uuid   NOT NULL,
    PRIMARY KEY (audit__id, queue__id, messages__id)
);

-- Whether an address is the one meant.
CREATE FUNCTION erasure_fits(localpart text, domain text, of text, at text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pillarbox, pg_temp AS
$$ SELECT coalesce(lowered(localpart) = of AND lowered(domain) = ANY (at), false) $$;

-- A text without the address. Twice, because two addresses side by side share the character between them.
CREATE FUNCTION erasure_text(words text, pattern text) RETURNS text LANGUAGE sql IMMUTABLE SET search_path = pillarbox, pg_temp AS
$$ SELECT regexp_replace(regexp_replace(words, pattern, E'\\1(erased)\\2', 'gi'), pattern, E'\\1(erased)\\2', 'gi') $$;

-- Refuses everybody but operators, and an erasure that is finished.
CREATE FUNCTION erasure_checked(erasure bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF NOT is_operator() THEN
        RAISE EXCEPTION '% may not erase: only operators may', acting_for()
            USING ERRCODE = 'insufficient_privilege', HINT = 'operators are members of the role that owns the queue, and principals with the role operator';
    ELSIF erasure IS NOT NULL AND NOT EXISTS (SELECT FROM erasures e WHERE e.audit__id = erasure AND e.state <> 'finished') THEN
        RAISE EXCEPTION 'audit % is not an unfinished erasure', erasure USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;

-- What is beside history, counted: queued mail to and from the address, of both what a worker is sending now, and the rest.
CREATE FUNCTION erasure_count(target text, localpart text, domains text[], pattern text,
                              OUT queued_to bigint, OUT queued_from bigint, OUT sending bigint, OUT notices bigint,
                              OUT suppressed boolean, OUT schedules text[], OUT reports bigint, OUT commands bigint, OUT unfinished bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM erasure_checked();
    SELECT count(*) FILTER (WHERE f.is_to), count(*) FILTER (WHERE NOT f.is_to), count(*) FILTER (WHERE f.lease_until > clock_timestamp())
      INTO queued_to, queued_from, sending
      FROM (SELECT erasure_fits(q.recipientlocalpart, q.recipientdomain, localpart, domains) AS is_to, q.lease_until FROM queue q
             WHERE erasure_fits(q.recipientlocalpart, q.recipientdomain, localpart, domains)
                OR erasure_fits(q.senderlocalpart, q.senderdomain, localpart, domains)) AS f;
    notices := (SELECT count(*) FROM notices n WHERE erasure_fits(n.recipientlocalpart, n.recipientdomain, localpart, domains)
                                                  OR erasure_fits(n.senderlocalpart, n.senderdomain, localpart, domains));
    suppressed := EXISTS (SELECT FROM suppressions s WHERE s.target IN (erasure_count.target, address_hash(erasure_count.target)) AND s.active);
    schedules := ARRAY(SELECT s.id FROM schedules s WHERE s.sender ~* pattern OR array_to_string(s.recipients, ' ') ~* pattern ORDER BY s.id);
    reports := (SELECT count(*) FROM reports r CROSS JOIN jsonb_array_elements(r.rows) AS e(found) WHERE e.found::text ~* pattern
                    OR erasure_fits(e.found->>'recipientlocalpart', e.found->>'recipientdomain', localpart, domains));
    commands := (SELECT count(*) FROM audit a WHERE concat_ws(' ', a.condition, a.argument, a.reason) ~* pattern);
    unfinished := (SELECT e.audit__id FROM erasures e WHERE e.hash = address_hash(erasure_count.target) AND e.state <> 'finished');
END $$;

-- Finished recipients of some time that go to or come from the address.
CREATE FUNCTION erasure_count_day(since timestamptz, until timestamptz, localpart text, domains text[],
                                  OUT sent_to bigint, OUT sent_from bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    PERFORM erasure_checked();
    SELECT count(*) FILTER (WHERE f.is_to), count(*) FILTER (WHERE NOT f.is_to) INTO sent_to, sent_from
      FROM (SELECT erasure_fits(a.recipientlocalpart, a.recipientdomain, localpart, domains) AS is_to FROM archive a
             WHERE a.finished >= since AND a.finished < until
               AND (erasure_fits(a.recipientlocalpart, a.recipientdomain, localpart, domains)
                    OR erasure_fits(a.senderlocalpart, a.senderdomain, localpart, domains))) AS f;
END $$;

-- Begins, or goes on where an erasure of the same address was cut off; the number of its audit row.
CREATE FUNCTION erasure_begin(target text, pattern text, operator text, reason text, argument jsonb, wanted bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
DECLARE
    marked text := address_hash(erasure_begin.target);
    made bigint;
BEGIN
    PERFORM erasure_checked();
    SELECT e.audit__id INTO made FROM erasures e WHERE e.hash = marked AND e.state <> 'finished';
    IF made IS NULL THEN
        INSERT INTO audit AS a (who, operator, verb, condition, argument, reason, wanted)
        VALUES (acting_for(), erasure_begin.operator, 'erase', marked, erasure_begin.argument,
                erasure_text(erasure_begin.reason, pattern), erasure_begin.wanted)
        RETURNING a.id INTO made;
        INSERT INTO erasures (audit__id, hash) VALUES (made, marked);
    END IF;
    RETURN made;
END $$;

-- Deletes queued mail to and from the address, save what a worker is sending at this moment; how many of each.
CREATE FUNCTION erasure_queue(erasure bigint, localpart text, domains text[], OUT deleted bigint, OUT sending bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    PERFORM erasure_checked(erasure);
    WITH found AS MATERIALIZED (
        SELECT q.id, q.messages__id, coalesce(q.lease_until > clock_timestamp(), false) AS is_sent FROM queue q
         WHERE erasure_fits(q.recipientlocalpart, q.recipientdomain, localpart, domains)
            OR erasure_fits(q.senderlocalpart, q.senderdomain, localpart, domains)
         ORDER BY q.id FOR UPDATE
    ), kept AS (
        INSERT INTO erasure_rows (audit__id, queue__id, messages__id) SELECT erasure, f.id, f.messages__id FROM found f ON CONFLICT DO NOTHING
    ), gone AS (
        DELETE FROM queue q USING found f WHERE q.id = f.id AND NOT f.is_sent RETURNING 1
    )
    SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM found f WHERE f.is_sent) INTO deleted, sending;
END $$;

-- Collects the finished recipients of some time.
CREATE FUNCTION erasure_find(erasure bigint, since timestamptz, until timestamptz, localpart text, domains text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    found_rows bigint;
BEGIN
    PERFORM erasure_checked(erasure);
    INSERT INTO erasure_rows (audit__id, queue__id, messages__id)
    SELECT DISTINCT erasure, a.id, a.messages__id FROM archive a
     WHERE a.finished >= since AND a.finished < until
       AND (erasure_fits(a.recipientlocalpart, a.recipientdomain, localpart, domains)
            OR erasure_fits(a.senderlocalpart, a.senderdomain, localpart, domains))
        ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS found_rows = ROW_COUNT;
    RETURN found_rows;
END $$;

-- Adds recipients that only the lake has.
CREATE FUNCTION erasure_add(erasure bigint, ids bigint[], messages uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    PERFORM erasure_checked(erasure);
    INSERT INTO erasure_rows (audit__id, queue__id, messages__id)
    SELECT erasure, i.id, i.message FROM unnest(ids, messages) AS i(id, message) ON CONFLICT DO NOTHING;
END $$;

-- The recipients that were collected; from here on they are deleted.
CREATE FUNCTION erasure_known(erasure bigint) RETURNS SETOF erasure_rows
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    PERFORM erasure_checked(erasure);
    UPDATE erasures e SET state = 'deleting' WHERE e.audit__id = erasure;
    RETURN QUERY SELECT r.* FROM erasure_rows r WHERE r.audit__id = erasure;
END $$;

-- Deletes these recipients from one day of a table of history, and the address from the texts of others; how many rows.
CREATE FUNCTION erasure_history(erasure bigint, history text, since timestamptz, until timestamptz, pattern text,
                                OUT deleted bigint, OUT changed bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    PERFORM erasure_checked(erasure);
    IF history = 'archive' THEN
        DELETE FROM archive a USING erasure_rows r
         WHERE a.finished >= since AND a.finished < until AND r.audit__id = erasure AND a.id = r.queue__id AND a.messages__id = r.messages__id;
        GET DIAGNOSTICS deleted = ROW_COUNT;
        UPDATE archive a
           SET saslusername = erasure_text(a.saslusername, pattern), last_error = erasure_text(a.last_error, pattern),
               subject = erasure_text(a.subject, pattern), metadata = erasure_text(a.metadata::text, pattern)::jsonb
         WHERE a.finished >= since AND a.finished < until
           AND (a.saslusername ~* pattern OR a.last_error ~* pattern OR a.subject ~* pattern OR a.metadata::text ~* pattern);
        GET DIAGNOSTICS changed = ROW_COUNT;
    ELSE
        DELETE FROM attempts a USING erasure_rows r
         WHERE a.ts >= since AND a.ts < until AND r.audit__id = erasure AND a.queue__id = r.queue__id AND a.messages__id = r.messages__id;
        GET DIAGNOSTICS deleted = ROW_COUNT;
        UPDATE attempts a
           SET reply_text = erasure_text(a.reply_text, pattern), conversation = erasure_text(a.conversation, pattern)
         WHERE a.ts >= since AND a.ts < until AND (a.reply_text ~* pattern OR a.conversation ~* pattern);
        GET DIAGNOSTICS changed = ROW_COUNT;
    END IF;
    UPDATE audit a SET done = a.done + erasure_history.deleted WHERE a.id = erasure AND history = 'archive';
END $$;

-- Deletes what is beside history: bodies that these recipients alone needed, notices, milestones, findings of reports, and the
-- address in the record of commands. Its suppression stays, by its hash; `suppress` makes one. `kept`: bodies that others need.
CREATE FUNCTION erasure_rest(erasure bigint, target text, localpart text, domains text[], pattern text, suppress boolean,
                             OUT bodies bigint, OUT kept bigint, OUT notices bigint, OUT reports bigint, OUT commands bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
DECLARE
    locked uuid[];
    needed uuid[];
BEGIN
    PERFORM erasure_checked(erasure);
    DELETE FROM notices n WHERE erasure_fits(n.recipientlocalpart, n.recipientdomain, localpart, domains)
                             OR erasure_fits(n.senderlocalpart, n.senderdomain, localpart, domains);
    GET DIAGNOSTICS notices = ROW_COUNT;
    UPDATE notices n SET reply_text = erasure_text(n.reply_text, pattern) WHERE n.reply_text ~* pattern;
    DELETE FROM notice_counts c WHERE c.sender ~* pattern;
    DELETE FROM milestones m USING erasure_rows r
     WHERE r.audit__id = erasure AND m.queue__id = r.queue__id AND m.messages__id = r.messages__id;
    -- As the sweep does: locked first, so that a transaction that gives a body a recipient at this moment is seen or waits.
    locked := ARRAY(SELECT m.id FROM messages m WHERE m.id IN (SELECT r.messages__id FROM erasure_rows r WHERE r.audit__id = erasure)
                     ORDER BY m.id FOR UPDATE);
    needed := ARRAY(SELECT b.id FROM unnest(locked) AS b(id)
                     WHERE EXISTS (SELECT FROM queue q WHERE q.messages__id = b.id)
                        OR EXISTS (SELECT FROM notices n WHERE n.messages__id = b.id)
                        OR EXISTS (SELECT FROM archive a WHERE a.messages__id = b.id AND archive_is_dead(a.result)));
    DELETE FROM messages m WHERE m.id = ANY (locked) AND m.id <> ALL (needed);
    GET DIAGNOSTICS bodies = ROW_COUNT;
    DELETE FROM released d WHERE d.messages__id = ANY (locked) AND d.messages__id <> ALL (needed);
    kept := cardinality(needed);
    UPDATE suppressions s
       SET target = address_hash(s.target), reason = erasure_text(s.reason, pattern), evidence = NULL, erased = true
     WHERE s.target = erasure_rest.target AND s.active
       AND NOT EXISTS (SELECT FROM suppressions o WHERE o.target = address_hash(erasure_rest.target));
    DELETE FROM suppressions s WHERE s.target = erasure_rest.target;
    IF suppress THEN
        INSERT INTO suppressions AS s (target, reason, source, erased)
        VALUES (address_hash(erasure_rest.target), 'by an operator', 'operator', true)
        ON CONFLICT (target) DO UPDATE SET expires = NULL, active = true;
    END IF;
    UPDATE reports p
       SET rows = coalesce((SELECT jsonb_agg(erasure_text(e.found::text, pattern)::jsonb ORDER BY e.n)
                              FROM jsonb_array_elements(p.rows) WITH ORDINALITY AS e(found, n)
                             WHERE NOT erasure_fits(e.found->>'recipientlocalpart', e.found->>'recipientdomain', localpart, domains)), '[]')
     WHERE p.rows::text ~* pattern
        OR EXISTS (SELECT FROM jsonb_array_elements(p.rows) AS e(found)
                    WHERE erasure_fits(e.found->>'recipientlocalpart', e.found->>'recipientdomain', localpart, domains));
    GET DIAGNOSTICS reports = ROW_COUNT;
    -- Undoing such a command would bring the address back.
    DELETE FROM audit_settings s WHERE concat_ws(' ', s.key, s.before, s.after) ~* pattern;
    UPDATE audit a SET condition = erasure_text(a.condition, pattern), argument = erasure_text(a.argument::text, pattern)::jsonb,
                       reason = erasure_text(a.reason, pattern)
     WHERE concat_ws(' ', a.condition, a.argument, a.reason) ~* pattern;
    GET DIAGNOSTICS commands = ROW_COUNT;
END $$;

-- Notes that nothing is left.
CREATE FUNCTION erasure_finish(erasure bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    PERFORM erasure_checked(erasure);
    DELETE FROM erasure_rows r WHERE r.audit__id = erasure;
    UPDATE erasures e SET state = 'finished' WHERE e.audit__id = erasure;
    UPDATE audit a SET finished = now() WHERE a.id = erasure;
END $$;
