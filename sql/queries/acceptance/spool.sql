-- The one transaction that puts submissions into the queue.

-- name: spool_begin
-- Opens the one transaction of a group commit and fixes how durable its COMMIT is, in a single round trip; a warning that it is
-- not is sent to us, whatever this role's setting says.
BEGIN; SET LOCAL synchronous_commit = {synchronous_commit}; SET LOCAL client_min_messages = warning

-- name: spool_keys
-- Takes idempotency keys for a group; the messages whose keys were used before, and by what.
SELECT message, earlier, fingerprint FROM pillarbox.idempotency_take(%s, %s, %s, %s)

-- name: spool_message_alone
-- The body of a message that is committed without a group.
INSERT INTO pillarbox.messages (id, size, smtputf8, content, msgid, subject) VALUES (%b, %b, %b, %b, %t, %t)

-- name: spool_messages
-- Bodies of a group of submissions.
COPY pillarbox.messages (id, size, smtputf8, msgid, subject, content) FROM STDIN (FORMAT BINARY)

-- name: spool_one
-- One message for one recipient, committed without a group: all in one statement, which is its own transaction.
-- set_config lasts until that ends, so this commit is as durable as is asked for, and a warning that it is not is sent to us.
WITH body AS (
    INSERT INTO pillarbox.messages (id, size, smtputf8, content, msgid, subject)
    VALUES (%(id)b, %(size)b, %(smtputf8)b, %(content)b, %(msgid)t, %(subject)t)
), recipient AS (
    INSERT INTO pillarbox.queue (messages__id, actionid, status, senderip, serverid, senderhelo, saslusername, senderlocalpart, senderdomain,
                                 recipientlocalpart, recipientdomain, size, metadata, transportid, priority, ts, next_retry)
    SELECT %(id)b, 1, %(status)t::pillarbox.queue_status, %(senderip)t, %(serverid)t, %(senderhelo)t, %(saslusername)t, %(senderlocalpart)t,
           %(senderdomain)t, %(recipientlocalpart)t, %(recipientdomain)t, %(size)b, %(metadata)b, %(transportid)t, %(priority)b,
           coalesce(due, now()), coalesce(due, now())
      FROM (VALUES (%(due)t::timestamptz)) AS asked(due)
)
SELECT set_config('synchronous_commit', %(synchronous_commit)t, true), set_config('client_min_messages', 'warning', true)

-- name: spool_probe
-- Proves that PostgreSQL takes writes and how long a commit takes: a record in the write-ahead log and nothing else.
SELECT pg_logical_emit_message(true, 'pillarbox', 'probe')

-- name: spool_queue
-- Recipients of a group of submissions that are due at once: through the root, so that PostgreSQL routes them to their leaves.
COPY pillarbox.queue (messages__id, actionid, status, senderip, serverid, senderhelo, saslusername, senderlocalpart, senderdomain,
                      recipientlocalpart, recipientdomain, size, metadata, transportid, priority)
  FROM STDIN (FORMAT BINARY)

-- name: spool_queue_later
-- Recipients that are due at a time of their own: their age begins when they are due, so that waiting uses up no tries.
COPY pillarbox.queue (messages__id, actionid, status, senderip, serverid, senderhelo, saslusername, senderlocalpart, senderdomain,
                      recipientlocalpart, recipientdomain, size, metadata, transportid, priority, ts, next_retry)
  FROM STDIN (FORMAT BINARY)

-- name: spool_recipient_alone
-- One recipient of a message that is committed without a group; `due` NULL is at once.
INSERT INTO pillarbox.queue (messages__id, actionid, status, senderip, serverid, senderhelo, saslusername, senderlocalpart, senderdomain,
                             recipientlocalpart, recipientdomain, size, metadata, transportid, priority, ts, next_retry)
SELECT %b, %b, %t::pillarbox.queue_status, %t, %t, %t, %t, %t, %t, %t, %t, %b, %b, %t, %b, coalesce(due, now()), coalesce(due, now())
  FROM (VALUES (%t::timestamptz)) AS asked(due)

-- name: spool_rights
-- Whether this login may write mail.
SELECT has_any_column_privilege('pillarbox.messages', 'INSERT') AND has_any_column_privilege('pillarbox.queue', 'INSERT') AS enough

-- name: spool_vanished
-- Those of these messages that the server does not know any more.
SELECT id FROM pillarbox.spool_vanished(%(ids)s) AS id
