-- Recipients that are due at a time of their own: their age begins when they are due, so that waiting uses up no tries.
COPY pillarbox.queue (messages__id, actionid, status, senderip, serverid, senderhelo, saslusername, senderlocalpart, senderdomain,
                      recipientlocalpart, recipientdomain, size, metadata, transportid, priority, ts, next_retry)
  FROM STDIN (FORMAT BINARY)
