-- One user by name, with verifiers: read by smtpd at each login.
SELECT name, argon2, scram, disabled, senders, messages, recipients, partitionid, transportid, quarantineid
FROM pillarbox.users WHERE name = %(name)s
