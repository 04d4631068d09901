-- Forgets recipients that are held there no more, so that one that is held again is told of again.
DELETE FROM pillarbox.digest_rows r
 WHERE r.quarantine = %(quarantine)s
   AND NOT EXISTS (SELECT FROM pillarbox.queue q
                    WHERE q.id = r.queue__id AND q.status = 'HOLD' AND q.metadata->>'_quarantineid' = r.quarantine)
