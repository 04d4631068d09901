-- Bodies to be sent, written without the spool.
INSERT INTO pillarbox.messages (id, size, content)
SELECT id, length(%(body)s::bytea), %(body)s::bytea FROM unnest(%(ids)s::uuid[]) AS id
