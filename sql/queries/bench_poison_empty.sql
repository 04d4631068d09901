-- Ends the poisoned recipients, those in hand too: their results find nothing to be recorded at.
DELETE FROM pillarbox.queue WHERE recipientlocalpart = 'poison'
