-- Notes, in the migration's own transaction, that it is done.
INSERT INTO pillarbox.migrations (number, name) VALUES (%(number)s, %(name)s)
