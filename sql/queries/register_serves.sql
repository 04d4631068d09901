-- Withdraws from what maintenance takes for unserved all that this worker's condition selects. By id, so that only what stands
-- there is looked at; what another worker withdraws at this moment is passed over.
DELETE FROM pillarbox.unserved u
 WHERE u.queue__id IN (
       SELECT mine.queue__id FROM pillarbox.unserved mine
        WHERE mine.queue__id = ANY (ARRAY(SELECT id FROM pillarbox.queue
                                           WHERE status = 'DELIVER' AND ({where})
                                             AND id = ANY (ARRAY(SELECT queue__id FROM pillarbox.unserved))))
        ORDER BY mine.queue__id FOR NO KEY UPDATE SKIP LOCKED)
