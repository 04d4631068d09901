-- Recipients of those bodies, `each` a message, spread over the partition ids.
INSERT INTO pillarbox.queue (messages__id, actionid, senderip, serverid, senderhelo, senderlocalpart, senderdomain, recipientlocalpart,
                             recipientdomain, size, metadata, next_retry)
SELECT m.id, number, '192.0.2.1', 'bench', 'client.example', 'sender', 'sender.example', 'recipient' || m.place,
       'domain' || (m.place + number) %% 97 || '.example', %(size)s,
       jsonb_build_object('_partid', ((m.place + number) %% %(partitions)s + 1)::text), now() + %(wait)s
  FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS m(id, place), generate_series(1, %(each)s) AS number
