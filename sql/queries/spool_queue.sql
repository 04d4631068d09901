-- Recipients of a group of submissions that are due at once: through the root, so that PostgreSQL routes them to their leaves.
COPY pillarbox.queue (messages__id, actionid, status, senderip, serverid, senderhelo, saslusername, senderlocalpart, senderdomain,
                      recipientlocalpart, recipientdomain, size, metadata, transportid, priority)
  FROM STDIN (FORMAT BINARY)
