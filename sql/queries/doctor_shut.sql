-- Mail that waits for a host which does not answer or has all it may have, or for DNS, among the `batch` earliest of what
-- was tried or parked before: what it waits for, how many recipients, and of how many domains; the most first.
SELECT gate, count(*) AS recipients, count(DISTINCT recipientdomain) AS domains
  FROM (SELECT recipientdomain, coalesce(substring(last_error FROM 'host [^ ]+'), 'DNS') AS gate
          FROM (SELECT recipientdomain, last_error FROM pillarbox.queue
                 WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NOT NULL
                 ORDER BY next_retry, id LIMIT %(batch)s) AS retried
         WHERE last_error ~ '^waiting: (host |DNS does not answer|[0-9]+ (attempts under way to host|questions to DNS))') AS shut
 GROUP BY gate
 ORDER BY recipients DESC, gate
 LIMIT 10
