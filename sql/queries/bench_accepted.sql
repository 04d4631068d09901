-- What a cell's clients were promised: as many messages, each for one recipient, of at least this many octets.
SELECT (SELECT count(*) FROM messages WHERE octet_length(content) >= %(size)s) AS messages,
       (SELECT count(*) FROM queue) AS recipients
