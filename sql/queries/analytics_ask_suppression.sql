-- Addresses refused for what they are, without mail taken since.
WITH listed AS (
    SELECT recipientlocalpart, recipientdomain, count(*) AS refusals, max(finished) AS last_refused,
           bool_or(last_error ~* '5\.1\.(1|2|3|6|10)\M|(no such|unknown|invalid|nonexistent) (user|recipient|mailbox|address)'
                   OR last_error ~* '(user|recipient|mailbox|address|account) (is )?(unknown|not found|disabled|does( not|n''t) exist)') AS no_such
      FROM pillarbox.archive
     WHERE finished >= %(since)s AND finished < %(until)s AND result = 'failed' AND coalesce(last_error, '') !~ '5\.7\.\d'
     GROUP BY 1, 2
    HAVING count(*) >= 3 OR octet_length(recipientlocalpart) > 64
        OR bool_or(last_error ~* '5\.1\.(1|2|3|6|10)\M|(no such|unknown|invalid|nonexistent) (user|recipient|mailbox|address)'
                   OR last_error ~* '(user|recipient|mailbox|address|account) (is )?(unknown|not found|disabled|does( not|n''t) exist)')
), taken AS (
    SELECT a.recipientlocalpart, a.recipientdomain, max(a.finished) AS last_taken
      FROM pillarbox.archive a JOIN listed USING (recipientlocalpart, recipientdomain)
     WHERE a.finished >= %(since)s AND a.finished < %(until)s AND a.result = 'success'
     GROUP BY 1, 2
)
SELECT recipientlocalpart, recipientdomain, no_such, refusals, last_refused
  FROM listed LEFT JOIN taken USING (recipientlocalpart, recipientdomain)
 WHERE last_taken IS NULL OR last_taken < last_refused
 ORDER BY refusals DESC, last_refused DESC LIMIT %(top)s
