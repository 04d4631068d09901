-- Least privilege: group roles an administrator grants to login roles. They belong to the cluster, their rights to this
-- database. Where the migrating role may not create roles, they are left out and the owner does everything.
--
-- The count triggers and functions that say SECURITY DEFINER run with their owner's rights, so that no role needs a right
-- on refcounts and released, or to make and drop tables.
SET LOCAL search_path = pillarbox;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pillarbox FROM PUBLIC;
GRANT EXECUTE ON FUNCTION partition_channel, notify_partition TO PUBLIC;  -- they read nothing, and anybody may notify

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['smtpd', 'queued', 'reviewer', 'analyst', 'maintainer', 'application', 'agent'] LOOP
        -- Another database of this cluster, or an administrator, may have made it.
        CONTINUE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = 'pillarbox_' || name);
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', 'pillarbox_' || name);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- at this very moment
        END;
    END LOOP;

    GRANT USAGE ON SCHEMA pillarbox TO pillarbox_smtpd, pillarbox_queued, pillarbox_reviewer, pillarbox_analyst,
        pillarbox_maintainer, pillarbox_application, pillarbox_agent;
    GRANT EXECUTE ON FUNCTION archive_is_dead, due_at, lowered, partition_id, priority_checked TO PUBLIC;  -- they read nothing
    GRANT SELECT ON migrations TO pillarbox_smtpd, pillarbox_queued;

    -- agents act for principals, with the rights of their other roles. No other role may. smtpd names the user whom it has
    -- authenticated in the rows that it inserts, and queued sends in no one's name. The rest are logins of people and of
    -- applications, each of which is somebody itself: with act_as it could be anybody, and send or decide in their name.
    -- httpd, which is one, finds the principal by the digest of a key, from which a key cannot be made.
    GRANT EXECUTE ON FUNCTION act_as, principal_known, principal_find, api_key_find, api_keys_used, idempotency_take, idempotency_known
        TO pillarbox_agent;
    GRANT EXECUTE ON FUNCTION web_password, web_link, web_link_use, web_session_begin, web_session_begin_named, web_session, web_session_seen,
        web_sessions_own, web_sessions_end, web_views_own, web_view_keep, web_view_forget, web_failure, web_failure_none,
        decision_link, decision_link_use TO pillarbox_agent;
    GRANT SELECT ON migrations TO pillarbox_agent;
    -- What a login learns about itself, and what triggers ask with its rights. acting_secret and principals are the owner's.
    GRANT EXECUTE ON FUNCTION acting_for, acted_for, acting_has, is_operator, may_review, review_checked, audit_takes_back
        TO pillarbox_smtpd, pillarbox_queued, pillarbox_reviewer, pillarbox_analyst, pillarbox_maintainer, pillarbox_application, pillarbox_agent;

    -- Every daemon has a row in the register; a collector has an application's rights.
    GRANT EXECUTE ON FUNCTION daemon_beat, daemon_leave TO pillarbox_smtpd, pillarbox_queued, pillarbox_application, pillarbox_agent;

    -- smtpd writes mail and reads none: not a body, not an address. Of a message whose id it knows it learns only that
    -- it is gone.
    GRANT INSERT (id, size, smtputf8, content, msgid, subject) ON messages TO pillarbox_smtpd;
    GRANT INSERT (messages__id, actionid, status, ts, senderip, serverid, senderhelo, saslusername, senderlocalpart,
                  senderdomain, recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority,
                  next_retry)
        ON queue TO pillarbox_smtpd;
    GRANT USAGE ON SEQUENCE queue_id_seq TO pillarbox_smtpd;
    GRANT EXECUTE ON FUNCTION spool_vanished, sender_blocked TO pillarbox_smtpd;
    GRANT SELECT ON users, suppressions, volumes_seen TO pillarbox_smtpd;
    GRANT EXECUTE ON FUNCTION address_hash TO pillarbox_smtpd, pillarbox_queued, pillarbox_maintainer;

    -- queued reads mail and moves it on; it can neither make a message nor change one.
    GRANT SELECT ON messages, queue, queue_state TO pillarbox_queued;
    GRANT UPDATE (token, worker, lease_until, lost_count, retry_count, next_retry, last_retry, last_error, noticed)
        ON queue TO pillarbox_queued;
    GRANT DELETE ON queue TO pillarbox_queued;
    GRANT INSERT ON attempts, archive TO pillarbox_queued;
    GRANT USAGE ON SEQUENCE claim_token_seq, attempts_id_seq TO pillarbox_queued;
    GRANT SELECT ON SEQUENCE queue_id_seq TO pillarbox_queued;
    GRANT EXECUTE ON FUNCTION message_headers,
        result_hold(timestamptz, bigint[], uuid[], bigint[], text[], text[], text[], timestamptz[]),
        hold_missing_body(timestamptz, bigint[], uuid[], bigint[], text[]) TO pillarbox_queued;
    -- It tells senders, and notes whom reports speak of.
    GRANT SELECT, INSERT, UPDATE (due, refused), DELETE ON notices TO pillarbox_queued;
    GRANT SELECT ON notice_counts TO pillarbox_queued;
    GRANT SELECT, INSERT, UPDATE ON suppressions TO pillarbox_queued;
    GRANT EXECUTE ON FUNCTION notice_send, notice_copy, report_known, report_only_recipient TO pillarbox_queued;
    -- It takes its share of limits, adds suspends by rule and sees them all.
    GRANT SELECT, INSERT, UPDATE ON suspends TO pillarbox_queued;
    GRANT SELECT, INSERT, UPDATE, DELETE ON warmups TO pillarbox_queued;
    GRANT EXECUTE ON FUNCTION suspend_fits,
        pace_share(text, text, double precision, integer, integer, integer, integer, integer, integer, interval)
        TO pillarbox_queued;
    -- It sends what schedules say.
    GRANT SELECT (id, cron, timezone, next_at, enabled) ON schedules TO pillarbox_queued;
    GRANT EXECUTE ON FUNCTION schedule_send(text, timestamptz, timestamptz), schedule_disable TO pillarbox_queued;
    -- It brings events to webhooks, which it may change to what queued.yaml says, and pause.
    GRANT SELECT, INSERT, UPDATE, DELETE ON webhooks TO pillarbox_queued, pillarbox_maintainer;
    GRANT SELECT, UPDATE ON webhook_cursors TO pillarbox_queued, pillarbox_maintainer;
    GRANT EXECUTE ON FUNCTION webhook_next, webhook_events, webhook_summarize, milestone_reported TO pillarbox_queued;
    -- It keeps its row of the register, and takes turns with other workers.
    GRANT SELECT, INSERT, UPDATE, DELETE ON workers TO pillarbox_queued;
    GRANT SELECT ON workers_seen, daemons_seen TO pillarbox_queued;
    GRANT SELECT, INSERT, UPDATE, DELETE ON transports TO pillarbox_queued;
    -- UPDATE, for the lock that withdrawing takes.
    GRANT SELECT, DELETE, UPDATE (noted) ON unserved TO pillarbox_queued;
    GRANT EXECUTE ON FUNCTION lock_try, lease_take, lease_give TO pillarbox_queued;

    -- Maintenance is a worker's, or a maintainer's by hand: by the server's clock.
    GRANT SELECT ON maintain_vacuum TO pillarbox_queued, pillarbox_maintainer;
    GRANT EXECUTE ON FUNCTION history_create(integer), maintain_history_drop(interval, interval),
        maintain_sweep(interval, interval, integer), maintain_sweep_since(interval, interval, integer, timestamptz),
        maintain_finish(text, integer), maintain_hold_poison(integer, integer), maintain_renotify(interval, integer),
        maintain_renotify_since(interval, integer, timestamptz, text, integer), maintain_unserved(interval, integer),
        maintain_unserved_since(interval, integer, timestamptz, text, integer), maintain_leaves(text, integer),
        maintain_forget_keys(interval, integer), maintain_forget_notices(interval, integer), maintain_clock(integer), pace_forget()
        TO pillarbox_queued, pillarbox_maintainer;

    -- maintainers look after what is beside the mail, send dead letters again, and clean up after an export.
    GRANT SELECT ON attempts, archive, dead_letters, notices, workers, workers_seen, daemons_seen, transports, unserved, volumes_seen,
        reports, report_minutes TO pillarbox_maintainer;
    GRANT SELECT, INSERT, UPDATE, DELETE ON schedules, suppressions, suspends, volumes TO pillarbox_maintainer;
    GRANT SELECT ON SEQUENCE queue_id_seq, attempts_id_seq TO pillarbox_maintainer;  -- figures look among the newest ids alone
    GRANT SELECT ON audit, audit_settings TO pillarbox_maintainer;
    GRANT EXECUTE ON FUNCTION audit_begin, audit_finish TO pillarbox_maintainer;
    GRANT EXECUTE ON FUNCTION dead_letters_requeue, suspend_fits, history_drop_if_counted(text, date, bigint, interval),
        orphans_release(uuid[]), orphans_hold(bigint[]) TO pillarbox_maintainer;
    -- They erase a person where they act for an operator, which these functions check.
    GRANT EXECUTE ON FUNCTION erasure_count, erasure_count_day, erasure_begin, erasure_queue, erasure_find, erasure_add, erasure_known,
        erasure_history, erasure_rest, erasure_finish TO pillarbox_maintainer;

    -- reviewers see what waits, read its bodies, decide about what is held, and record it by functions.
    GRANT SELECT ON queue, queue_state, mail, messages, status_transitions, attempts, archive, audit, audit_rows,
        transports, reports, report_minutes TO pillarbox_reviewer;
    GRANT UPDATE (status) ON queue TO pillarbox_reviewer;
    GRANT UPDATE (state), DELETE ON mail TO pillarbox_reviewer;
    GRANT EXECUTE ON FUNCTION audit_begin, audit_remember, audit_add, audit_finish, audit_older, queue_release_copies,
        queue_redirect, queue_restore_deleted, sender_block, sender_unblock, sender_block_undo TO pillarbox_reviewer;
    GRANT SELECT ON blocked_senders TO pillarbox_reviewer;
    GRANT SELECT, INSERT, UPDATE ON digests TO pillarbox_reviewer;
    GRANT SELECT, INSERT, DELETE ON digest_rows TO pillarbox_reviewer;

    -- applications queue mail, and see and change what they queued.
    GRANT EXECUTE ON FUNCTION enqueue, enqueue_batch TO pillarbox_application;
    GRANT SELECT, INSERT, DELETE, UPDATE (priority, next_retry) ON own_mail TO pillarbox_application;

    -- analysts see history and what was done, no address but its domain in attempts unless conversations are kept, and write
    -- reports.
    GRANT SELECT ON attempts, archive, audit TO pillarbox_analyst;
    GRANT SELECT, INSERT, UPDATE ON reports TO pillarbox_analyst;
    GRANT SELECT, INSERT ON report_alarms TO pillarbox_analyst;
    GRANT SELECT, INSERT, UPDATE, DELETE ON report_minutes, report_streams TO pillarbox_analyst;
    GRANT EXECUTE ON FUNCTION webhook_next TO pillarbox_analyst;  -- the next snapshot of a reader of history
EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE 'roles are left out: this role may not create them';
END $$;
