-- Recipients of a group of submissions: through the root, so that PostgreSQL routes them to their leaves.
COPY pillarbox.queue (messages__id, actionid, status, senderip, serverid, senderhelo, saslusername, senderlocalpart, senderdomain,
                      recipientlocalpart, recipientdomain, size, metadata, transportid)
  FROM STDIN (FORMAT BINARY)
