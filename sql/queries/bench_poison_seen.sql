-- Poisoned recipients that a worker has looked at, those in hand, and how many there are.
SELECT count(*) FILTER (WHERE last_error IS NOT NULL) AS seen, count(*) FILTER (WHERE token IS NOT NULL) AS taken, count(*) AS there
  FROM pillarbox.queue
 WHERE recipientlocalpart = 'poison'
