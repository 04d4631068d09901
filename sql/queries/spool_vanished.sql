-- Those of these messages that the server does not know any more.
SELECT id FROM pillarbox.spool_vanished(%(ids)s) AS id
