-- A piece of a message's content, so that a large one is never held as a whole.
SELECT substring(content FROM %(start)s::integer FOR %(most)s::integer) AS piece FROM pillarbox.messages WHERE id = %(message)s
