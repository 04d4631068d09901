-- Adds a user; no row when the name is taken.
INSERT INTO pillarbox.users (name, argon2, scram, disabled, senders, messages, recipients, partitionid, transportid, quarantineid)
VALUES (%(name)s, %(argon2)s, %(scram)s, %(disabled)s, %(senders)s::text[], %(messages)s, %(recipients)s, %(partition)s,
        %(transport)s, %(hold)s)
ON CONFLICT (name) DO NOTHING RETURNING name
