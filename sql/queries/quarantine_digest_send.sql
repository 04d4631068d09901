-- Spools a digest and notes that it was sent, in one transaction; with the key of a period that has one already, that one.
UPDATE pillarbox.digests
   SET sent = now(),
       messages__id = pillarbox.enqueue(%(sender)s, %(recipients)s, %(content)s::bytea, idempotency_key => %(key)s, jobid => 'quarantine-digest')
 WHERE quarantine = %(quarantine)s
RETURNING messages__id AS message
