-- The beginning of a message's content, so that a large one is not read to show its header.
SELECT size, substring(content FROM 1 FOR %(most)s::integer) AS content FROM pillarbox.messages WHERE id = %(message)s
