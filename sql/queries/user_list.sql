-- Every user by name, with verifiers.
SELECT name, argon2, scram, disabled, senders, messages, recipients, partitionid, transportid, quarantineid
FROM pillarbox.users ORDER BY name
