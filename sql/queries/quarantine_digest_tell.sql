-- Notes every held recipient that nobody was told of as told now, and returns how many there are.
WITH told AS (
    INSERT INTO pillarbox.digest_rows (quarantine, queue__id, told)
    SELECT %(quarantine)s, q.id, now() FROM pillarbox.queue q
     WHERE q.status = 'HOLD' AND q.metadata->>'_quarantineid' = %(quarantine)s
        ON CONFLICT DO NOTHING
    RETURNING queue__id
)
SELECT count(*) AS recipients FROM told
