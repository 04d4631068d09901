-- One recipient of a message that is committed without a group; `due` NULL is at once.
INSERT INTO pillarbox.queue (messages__id, actionid, status, senderip, serverid, senderhelo, saslusername, senderlocalpart, senderdomain,
                             recipientlocalpart, recipientdomain, size, metadata, transportid, priority, ts, next_retry)
SELECT %b, %b, %t::pillarbox.queue_status, %t, %t, %t, %t, %t, %t, %t, %t, %b, %b, %t, %b, coalesce(due, now()), coalesce(due, now())
  FROM (VALUES (%t::timestamptz)) AS asked(due)
