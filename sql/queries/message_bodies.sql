-- The bodies of claimed recipients.
SELECT id, content, smtputf8 FROM pillarbox.messages WHERE id = ANY(%(ids)s)
