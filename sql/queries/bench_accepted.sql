-- What a cell's clients were promised: as many messages, each for one recipient, of at least this many octets.
SELECT (SELECT count(*) FROM pillarbox.messages WHERE octet_length(content) >= %(size)s) AS messages,
       (SELECT count(*) FROM pillarbox.queue) AS recipients
