-- The message that notices are about: the beginning of its content, its size and how it came.
SELECT substring(content FROM 1 FOR %(limit)s::integer) AS content, size, smtputf8 FROM pillarbox.messages WHERE id = %(message)s
