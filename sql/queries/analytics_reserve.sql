-- Takes `count` numbers from each sequence that history is numbered by, and returns the first of each.
SELECT setval('pillarbox.attempts_id_seq', nextval('pillarbox.attempts_id_seq') + %(count)s) - %(count)s AS attempt,
       setval('pillarbox.queue_id_seq', nextval('pillarbox.queue_id_seq') + %(count)s) - %(count)s AS recipient,
       setval('pillarbox.claim_token_seq', nextval('pillarbox.claim_token_seq') + %(count)s) - %(count)s AS token
