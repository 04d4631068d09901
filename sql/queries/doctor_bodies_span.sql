-- The oldest and the newest message, between which a sample begins.
SELECT (SELECT id FROM pillarbox.messages ORDER BY id LIMIT 1) AS oldest, (SELECT id FROM pillarbox.messages ORDER BY id DESC LIMIT 1) AS newest
