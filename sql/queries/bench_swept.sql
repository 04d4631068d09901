-- Whether every body is deleted.
SELECT NOT EXISTS (SELECT FROM pillarbox.messages) AS swept
