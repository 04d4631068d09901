-- Forgets the mail of a cell: rows first, so that the bodies are free to go.
DELETE FROM pillarbox.queue
