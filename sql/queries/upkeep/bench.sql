-- What benchmarks set up, count and measure. Not in the wheel.

-- name: bench_accepted
-- What a cell's clients were promised: as many messages, each for one recipient, of at least this many octets.
SELECT (SELECT count(*) FROM pillarbox.messages WHERE octet_length(content) >= %(size)s) AS messages,
       (SELECT count(*) FROM pillarbox.queue) AS recipients

-- name: bench_checkpoint
-- Moves the next checkpoint out of the cell, and gives every cell the same first writes of its pages.
CHECKPOINT

-- name: bench_database_copy
-- Makes a database with our schema for one cell of the benchmark.
CREATE DATABASE {table} TEMPLATE bench_template STRATEGY WAL_LOG

-- name: bench_database_drop
-- Drops a benchmark's database, also while clients are connected.
DROP DATABASE IF EXISTS {table} WITH (FORCE)

-- name: bench_database_new
-- Makes an empty database for a peer, or the one the others are copied from.
CREATE DATABASE {table}

-- name: bench_empty
-- Forgets the mail of a cell: rows first, so that the bodies are free to go.
DELETE FROM pillarbox.queue

-- name: bench_empty_messages
-- The bodies that no recipient needs any more, all of them at once.
WITH gone AS (DELETE FROM pillarbox.released RETURNING messages__id)
DELETE FROM pillarbox.messages USING gone WHERE id = messages__id

-- name: bench_enqueue
-- One message of an application.
SELECT pillarbox.enqueue('shop@sender.example', ARRAY[%(recipient)s::text], %(content)s)

-- name: bench_enqueue_batch
-- A batch of an application's messages.
SELECT count(*) FROM pillarbox.enqueue_batch(%(submissions)s::jsonb)

-- name: bench_find_days
-- Makes the days of an archive that is so many days long.
SELECT pillarbox.history_create(now() - make_interval(days => %(days)s), %(days)s)

-- name: bench_find_rows
-- Delivered recipients from one number to another, of so many that are spread over the days.
INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, senderip, serverid, senderlocalpart, senderdomain,
                               recipientlocalpart, recipientdomain, size, metadata, transportid, priority, retry_count, worker, msgid, subject)
SELECT n, md5(n::text)::uuid, 1, at, 'success', at, '192.0.2.1', 'default', 'sender', 'sender.example', 'recipient' || n,
       'domain' || n %% 997 || '.example', 4096, jsonb_build_object('_partid', (n %% 6 + 1)::text), 'default', 0, 1, 'queued-123',
       n || '@mail.example', 'Your order ' || n || ' was shipped'
  FROM (SELECT n, now() - make_interval(secs => 86400.0 * %(days)s * n / %(rows)s) AS at
          FROM generate_series(%(begin)s::bigint, %(end)s::bigint) AS n) AS each

-- name: bench_hot
-- The share of updates of queue rows that wrote no index entry.
SELECT coalesce(sum(n_tup_hot_upd) / nullif(sum(n_tup_upd), 0), 0)::float8 AS share
  FROM pg_stat_user_tables
 WHERE schemaname = 'pillarbox' AND relname LIKE 'queue\_def\_%'

-- name: bench_idle
-- Whether nothing waits for delivery any more.
SELECT NOT EXISTS (SELECT FROM pillarbox.queue) AS idle

-- name: bench_ledger
-- What must agree after a drain: nothing waits, each recipient is archived once, tried once, and every body is let go.
SELECT (SELECT count(*) FROM pillarbox.queue WHERE next_retry <= now()) AS waiting,
       (SELECT count(*) FROM pillarbox.archive WHERE result = 'success') AS archived,
       (SELECT count(DISTINCT id) FROM pillarbox.archive) AS distinct_archived,
       (SELECT count(*) FROM pillarbox.attempts WHERE outcome = 'delivered') AS tried,
       (SELECT count(*) FROM pillarbox.bodies WHERE refcount <> 0 OR released IS NULL) AS held,
       (SELECT count(*) FROM pillarbox.messages) AS messages

-- name: bench_locks
-- How many locks there are at this moment.
SELECT count(*) AS locks FROM pg_locks

-- name: bench_long_delivered
-- How many recipients of these domains that came since then have their result, and their percentiles of milliseconds until then.
SELECT count(*) AS recipients, coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY took), 0) AS p50,
       coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY took), 0) AS p99
  FROM (SELECT (extract(epoch FROM finished - ts) * 1000)::float8 AS took FROM pillarbox.archive
         WHERE finished >= %(since)s::timestamptz AND ts >= %(since)s::timestamptz AND result = 'success'
           AND recipientdomain = ANY (%(domains)s::text[])) AS each

-- name: bench_long_fill
-- Queues recipients of a message each that wait: of `total` over three days, a third of them of one domain, a fiftieth on hold, a
-- fifth never tried; due in one hour at the earliest, over a day.
WITH each AS MATERIALIZED (
    SELECT n, gen_random_uuid() AS id, now() - make_interval(secs => 259200.0 * (1 - n::float8 / %(total)s::bigint)) AS at
      FROM generate_series(%(begin)s::bigint + 1, %(most)s::bigint) AS n
), body AS (
    INSERT INTO pillarbox.messages (id, ts, size, content, msgid, subject)
    SELECT id, at, 600, convert_to(format(E'From: news@sender.example\r\nSubject: News %%s\r\nMessage-ID: <%%s@sender.example>\r\n\r\n%%s\r\n',
                                          n, n, repeat('x', 500)), 'UTF8'), n || '@sender.example', 'News ' || n
      FROM each
)
INSERT INTO pillarbox.queue (messages__id, status, ts, senderip, serverid, senderhelo, senderlocalpart, senderdomain, recipientlocalpart,
                             recipientdomain, size, metadata, jobid, retry_count, next_retry, last_retry, last_error)
SELECT id, CASE WHEN n %% 50 = 0 THEN 'HOLD' ELSE 'DELIVER' END::pillarbox.queue_status, at, '192.0.2.' || n %% 200, 'bench', 'client.example',
       'news', 'sender' || n %% 40 || '.example', 'r' || n,
       CASE WHEN n %% 3 = 0 THEN 'big.example' ELSE 'd' || n * 7919 %% 5000 || '.example' END, 600,
       jsonb_build_object('_partid', (1 + n %% 6)::text)
           || CASE WHEN n %% 50 = 0 THEN jsonb_build_object('_quarantineid', 'q' || n / 50 %% 5) ELSE '{}' END,
       'news-' || n * 20 / %(total)s::bigint, CASE WHEN n %% 5 = 0 THEN 0 ELSE 1 + n %% 9 END,
       now() + make_interval(secs => 3600 + 86400.0 * (n * 104729 %% 100000) / 100000),
       CASE WHEN n %% 5 > 0 THEN now() - interval '10 minutes' END,
       (ARRAY['450 4.7.1 Greylisted, try again later', 'connect to 192.0.2.9:25: timed out', '421 4.3.2 Service unavailable',
              '452 4.2.2 Mailbox full: r' || n])[n %% 5]
  FROM each

-- name: bench_messages
-- Bodies to be sent, written without the spool.
INSERT INTO pillarbox.messages (id, size, content)
SELECT id, length(%(body)s::bytea), %(body)s::bytea FROM unnest(%(ids)s::uuid[]) AS id

-- name: bench_pgmq_archive
-- Finishes what was read.
SELECT pgmq.archive('bench', %(ids)s::bigint[])

-- name: bench_pgmq_create
-- Makes pgmq's queue.
SELECT pgmq.create('bench')

-- name: bench_pgmq_ledger
-- What must agree after pgmq's drain.
SELECT (SELECT count(*) FROM pgmq.q_bench) AS waiting, (SELECT count(*) FROM pgmq.a_bench) AS archived

-- name: bench_pgmq_read
-- Reads up to `batch` messages, invisible to others for fifteen minutes as our lease is.
SELECT * FROM pgmq.read('bench', 900, %(batch)s)

-- name: bench_pgmq_send
-- Sends `batch` messages with this body in one call.
SELECT count(*) FROM pgmq.send_batch('bench', (SELECT array_agg(jsonb_build_object('body', %(body)s::text)) FROM generate_series(1, %(batch)s)))

-- name: bench_poison
-- Recipients of those bodies, each at a domain of its own that `domain` gives, # its number, spread over the partition ids.
INSERT INTO pillarbox.queue (messages__id, actionid, senderip, serverid, senderhelo, senderlocalpart, senderdomain, recipientlocalpart,
                             recipientdomain, size, metadata)
SELECT m.id, 1, '192.0.2.1', 'bench', 'client.example', 'sender', 'sender.example', 'poison', replace(%(domain)s::text, '#', m.place::text),
       %(size)s, jsonb_build_object('_partid', (m.place %% %(partitions)s + 1)::text)
  FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS m(id, place)

-- name: bench_poison_empty
-- Ends the poisoned recipients, those in hand too: their results find nothing to be recorded at.
DELETE FROM pillarbox.queue WHERE recipientlocalpart = 'poison'

-- name: bench_poison_seen
-- Poisoned recipients that a worker has looked at, those in hand, and how many there are.
SELECT count(*) FILTER (WHERE last_error IS NOT NULL) AS seen, count(*) FILTER (WHERE token IS NOT NULL) AS taken, count(*) AS there
  FROM pillarbox.queue
 WHERE recipientlocalpart = 'poison'

-- name: bench_principal
-- An application that sends by HTTP.
INSERT INTO pillarbox.principals (name, kind, roles) VALUES ('bench', 'application', '{sender}')

-- name: bench_queue
-- Recipients of those bodies, `each` a message, spread over the partition ids.
INSERT INTO pillarbox.queue (messages__id, actionid, senderip, serverid, senderhelo, senderlocalpart, senderdomain, recipientlocalpart,
                             recipientdomain, size, metadata, next_retry)
SELECT m.id, number, '192.0.2.1', 'bench', 'client.example', 'sender', 'sender.example', 'recipient' || m.place,
       'domain' || (m.place + number) %% 97 || '.example', %(size)s,
       jsonb_build_object('_partid', ((m.place + number) %% %(partitions)s + 1)::text), now() + %(wait)s
  FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS m(id, place), generate_series(1, %(each)s) AS number

-- name: bench_settings
-- What a figure depends on.
SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit, current_setting('full_page_writes') AS full_page_writes,
       current_setting('shared_buffers') AS shared_buffers, current_setting('wal_compression') AS wal_compression

-- name: bench_snapshot
-- Opens a snapshot and keeps it, as a backup or a long report does.
BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pillarbox.settings

-- name: bench_swept
-- Whether every body is deleted.
SELECT NOT EXISTS (SELECT FROM pillarbox.messages) AS swept

-- name: bench_vacuum
-- Leaves every cell the same start: statistics, visibility, nothing for autovacuum to do in the middle.
VACUUM (ANALYZE)

-- name: bench_wal
-- Octets of WAL written so far.
SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint AS octets

-- name: bench_webhook
-- An endpoint without a position of its own: it gets what happens from now on.
INSERT INTO pillarbox.webhooks (name, url, events, condition, secrets, private, batch)
VALUES (%(name)s, %(url)s, %(kinds)s, %(condition)s, %(secrets)s, %(private)s, %(batch)s)

-- name: bench_webhook_rows
-- Delivered recipients with their tries, as one group of results.
WITH each AS (
    SELECT n, gen_random_uuid() AS message, nextval('pillarbox.queue_id_seq') AS id FROM generate_series(%(begin)s::bigint, %(begin)s::bigint + %(rows)s::bigint - 1) AS n
), tried AS (
    INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, partid, transportid, senderdomain, recipientdomain,
                                    size, remote, outcome, scope, reply_code, reply_enhanced, reply_text, duration, tls)
    SELECT now(), id, message, 1, n + 1, 'queued-123', '1', 'default', 'sender.example', 'domain' || n %% 997 || '.example', 4096, '192.0.2.25:25',
           'delivered', 'recipient', 250, '2.0.0', '250 2.0.0 Ok: queued as 4F1d2c3b', interval '200 ms',
           'TLSv1.3 TLS_AES_256_GCM_SHA384 verified' FROM each
)
INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, senderip, serverid, senderlocalpart, senderdomain,
                               recipientlocalpart, recipientdomain, size, metadata, transportid, priority, retry_count, worker, msgid, subject)
SELECT id, message, 1, now(), 'success', now(), '192.0.2.1', 'default', 'sender', 'sender.example', 'recipient' || n,
       'domain' || n %% 997 || '.example', 4096, '{"_partid": "1", "tenant": "acme"}', 'default', 0, 1, 'queued-123', n || '@mail.example',
       'Your order ' || n || ' was shipped'
  FROM each

-- name: bench_accounts_make
-- So many accounts, each with its activation token.
INSERT INTO accounts (email, login)
SELECT l || '@example.com', l FROM generate_series(1, %(count)s) AS n, concat('user', n, '-', gen_random_uuid()) AS l

-- name: bench_accounts_settle
-- Gives the planner what it would know after a while.
ANALYZE accounts, tokens

-- name: bench_tokens_lock
-- A batch of new tokens, in the least that finds them.
SELECT id FROM tokens WHERE action = 'activation' AND collected_at IS NULL AND consumed_at IS NULL ORDER BY expires_at, id LIMIT %(batch)s
   FOR NO KEY UPDATE SKIP LOCKED

-- name: bench_tokens_mark
-- Marks a batch.
UPDATE tokens SET collected_at = extract(epoch FROM now()) WHERE id = ANY (%(ids)s)

-- name: bench_tokens_left
-- How many tokens are new.
SELECT count(*) AS left_over FROM tokens WHERE collected_at IS NULL

-- name: bench_mail_queued
-- How many recipients are queued.
SELECT count(*) AS queued FROM pillarbox.queue

-- name: bench_oldest_msgid
-- A Message-ID of the oldest day of history.
SELECT msgid FROM pillarbox.archive WHERE msgid IS NOT NULL ORDER BY finished LIMIT 1

-- name: bench_web_delivered
-- How many recipients that were accepted since then were delivered, and the 99th percentile of their milliseconds.
SELECT count(*) AS recipients,
       coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM finished - ts) * 1000), 0) AS p99
  FROM pillarbox.archive WHERE ts >= %(since)s::timestamptz AND result = 'success' AND recipientdomain = 'bench.example'

-- name: bench_web_fill
-- Queues recipients of one message each 50,000, of 1,000 domains, that wait until tomorrow: a tenth tried, a hundredth held.
WITH body AS (
    INSERT INTO pillarbox.messages (id, size, content) VALUES (gen_random_uuid(), 20, convert_to(E'Subject: waits\r\n\r\nx', 'UTF8')) RETURNING id
)
INSERT INTO pillarbox.queue (messages__id, status, senderlocalpart, senderdomain, recipientlocalpart, recipientdomain, size, metadata,
                             retry_count, next_retry, last_retry, last_error)
SELECT body.id, CASE WHEN n %% 100 = 0 THEN 'HOLD' ELSE 'DELIVER' END::pillarbox.queue_status, 'a', 'sender.example', 'r' || n,
       'd' || n %% 1000 || '.example', 20, jsonb_build_object('_partid', (1 + n %% 6)::text),
       CASE WHEN n %% 10 = 1 THEN 3 ELSE 0 END, now() + interval '1 day',
       CASE WHEN n %% 10 = 1 THEN now() END, CASE WHEN n %% 10 = 1 THEN '450 4.7.1 Greylisted' END
  FROM body, generate_series(%(begin)s::integer + 1, %(most)s::integer) AS n

-- name: bench_web_send
-- Queues a message that is due at once.
SELECT pillarbox.enqueue('a@sender.example', ARRAY['r' || %(number)s::integer || '@bench.example'], convert_to(E'Subject: now\r\n\r\nx\r\n', 'UTF8')) AS message
