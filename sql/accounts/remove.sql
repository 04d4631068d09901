-- Takes away what sql/accounts/schema made, and nothing else: what depends on it, such as a view, is refused.
DROP TABLE tokens, decoys, decoy_accounts, accounts, account_transitions, account_settings, jobs, account_migrations;
DROP SEQUENCE decoys_id_seq;
DROP FUNCTION trg_before_account_insert, trg_before_account_status_change, trg_after_account_insert, trg_after_account_unsuspended,
    trg_after_account_email_change, trg_before_token_insert, trg_before_token_change, trg_after_token_consumed, trg_after_token_inserted,
    trg_before_decoy_insert, request_recovery, request_activation, token_request, consume_token, consume_code, tokens_forget,
    token_secret, token_code, token_needs;
DROP TYPE account_status, token_action, job_type;
