-- Least privilege: group roles an administrator grants to login roles. They belong to the cluster, their rights to this
-- database. Where the migrating role may not create roles, they are left out and the owner does everything.
--
-- The count triggers and the functions below run with their owner's rights (SECURITY DEFINER, search_path fixed), so that
-- nobody needs a right on refcounts and released, or to make and drop tables.
SET LOCAL search_path = pillarbox;

ALTER FUNCTION queue_arrived() SECURITY DEFINER;
ALTER FUNCTION queue_left() SECURITY DEFINER;
ALTER FUNCTION queue_moved() SECURITY DEFINER;
ALTER FUNCTION archive_died() SECURITY DEFINER;
ALTER FUNCTION enqueue(text, text[], bytea, text, timestamptz, integer, jsonb, text, text, boolean) SECURITY DEFINER;
ALTER FUNCTION enqueue_batch(jsonb) SECURITY DEFINER;
ALTER FUNCTION dead_letters_requeue(bigint[]) SECURITY DEFINER;
ALTER FUNCTION history_create(timestamptz, integer) SECURITY DEFINER;
ALTER FUNCTION maintain_sweep(timestamptz, interval, interval, integer) SECURITY DEFINER;
ALTER FUNCTION maintain_finish(timestamptz, text, integer) SECURITY DEFINER;
ALTER FUNCTION maintain_hold_poison(timestamptz, integer, integer) SECURITY DEFINER;
ALTER FUNCTION maintain_renotify(timestamptz, interval, integer) SECURITY DEFINER;
ALTER FUNCTION maintain_history_drop(timestamptz, interval) SECURITY DEFINER;
ALTER FUNCTION maintain_forget_keys(timestamptz, interval, integer) SECURITY DEFINER;

-- Who works with granted rights decides about what is held, and about nothing else; who owns the queue is an operator.
-- It runs with the rights of the statement: what a function of ours moves, its owner moves.
CREATE FUNCTION queue_reviewed() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF NOT pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = 'pillarbox.queue'::regclass), 'USAGE') THEN
        RAISE EXCEPTION 'queue row % is not on hold: % may not move it', OLD.id, current_user
            USING ERRCODE = 'insufficient_privilege', HINT = 'operators may: members of the role that owns the queue';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER queue_reviewed BEFORE UPDATE OF status ON queue
    FOR EACH ROW WHEN (OLD.status <> 'HOLD' AND OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION queue_reviewed();

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pillarbox FROM PUBLIC;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['smtpd', 'queued', 'reviewer', 'analyst', 'maintainer', 'application'] LOOP
        -- Another database of this cluster, or an administrator, may have made it.
        CONTINUE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = 'pillarbox_' || name);
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', 'pillarbox_' || name);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- at this very moment
        END;
    END LOOP;

    GRANT USAGE ON SCHEMA pillarbox TO pillarbox_smtpd, pillarbox_queued, pillarbox_reviewer, pillarbox_analyst,
        pillarbox_maintainer, pillarbox_application;
    GRANT SELECT ON migrations TO pillarbox_smtpd, pillarbox_queued;

    -- smtpd writes mail and reads none: not a body, not an address.
    GRANT INSERT (id, size, smtputf8, content) ON messages TO pillarbox_smtpd;
    GRANT INSERT (messages__id, actionid, status, ts, senderip, serverid, senderhelo, saslusername, senderlocalpart, senderdomain,
                  recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority, next_retry)
        ON queue TO pillarbox_smtpd;
    GRANT USAGE ON SEQUENCE queue_id_seq TO pillarbox_smtpd;

    -- queued reads mail and moves it on; it can neither make a message nor change one.
    GRANT SELECT ON messages, queue, queue_state TO pillarbox_queued;
    GRANT UPDATE (token, worker, lease_until, lost_count, retry_count, next_retry, last_retry, last_error) ON queue TO pillarbox_queued;
    GRANT DELETE ON queue TO pillarbox_queued;
    GRANT INSERT ON attempts, archive TO pillarbox_queued;
    GRANT USAGE ON SEQUENCE claim_token_seq, attempts_id_seq TO pillarbox_queued;

    -- reviewers see what waits, read its bodies and decide about what is held.
    GRANT SELECT ON queue, queue_state, mail, messages TO pillarbox_reviewer;
    GRANT UPDATE (status) ON queue TO pillarbox_reviewer;
    GRANT UPDATE (state), DELETE ON mail TO pillarbox_reviewer;
    GRANT SELECT ON status_transitions TO pillarbox_reviewer;

    -- applications queue mail, and see and change what they queued.
    GRANT SELECT, DELETE, UPDATE (priority, next_retry) ON own_mail TO pillarbox_application;

    -- analysts see history, and no address but its domain in attempts.
    GRANT SELECT ON attempts, archive TO pillarbox_analyst;

    GRANT SELECT ON attempts, archive, dead_letters TO pillarbox_maintainer;
    GRANT EXECUTE ON FUNCTION maintain_sweep, maintain_finish, maintain_hold_poison, maintain_renotify, maintain_history_drop,
        maintain_forget_keys, history_create TO pillarbox_queued, pillarbox_maintainer;
    GRANT SELECT ON maintain_vacuum TO pillarbox_queued, pillarbox_maintainer;
    GRANT EXECUTE ON FUNCTION dead_letters_requeue TO pillarbox_maintainer;
    GRANT EXECUTE ON FUNCTION enqueue, enqueue_batch TO pillarbox_application;
    GRANT EXECUTE ON FUNCTION archive_is_dead, due_at, partition_id TO PUBLIC;  -- they read nothing
EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE 'roles are left out: this role may not create them';
END $$;
