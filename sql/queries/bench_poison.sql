-- Recipients of those bodies, each at a domain of its own that `domain` gives, # its number, spread over the partition ids.
INSERT INTO pillarbox.queue (messages__id, actionid, senderip, serverid, senderhelo, senderlocalpart, senderdomain, recipientlocalpart,
                             recipientdomain, size, metadata)
SELECT m.id, 1, '192.0.2.1', 'bench', 'client.example', 'sender', 'sender.example', 'poison', replace(%(domain)s::text, '#', m.place::text),
       %(size)s, jsonb_build_object('_partid', (m.place %% %(partitions)s + 1)::text)
  FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS m(id, place)
