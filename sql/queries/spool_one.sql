-- One message for one recipient, committed without a group: all in one statement, which is its own transaction.
-- set_config lasts until that ends, so this commit is as durable as is asked for, and a warning that it is not is sent to us.
WITH body AS (
    INSERT INTO pillarbox.messages (id, size, smtputf8, content) VALUES (%(id)b, %(size)b, %(smtputf8)b, %(content)b)
), recipient AS (
    INSERT INTO pillarbox.queue (messages__id, actionid, status, senderip, serverid, senderhelo, saslusername, senderlocalpart, senderdomain,
                                 recipientlocalpart, recipientdomain, size, metadata, transportid, priority, ts, next_retry)
    SELECT %(id)b, 1, %(status)t::pillarbox.queue_status, %(senderip)t, %(serverid)t, %(senderhelo)t, %(saslusername)t, %(senderlocalpart)t,
           %(senderdomain)t, %(recipientlocalpart)t, %(recipientdomain)t, %(size)b, %(metadata)b, %(transportid)t, %(priority)b,
           coalesce(due, now()), coalesce(due, now())
      FROM (VALUES (%(due)t::timestamptz)) AS asked(due)
)
SELECT set_config('synchronous_commit', %(synchronous_commit)t, true), set_config('client_min_messages', 'warning', true)
