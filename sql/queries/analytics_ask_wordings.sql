-- Replies of peers without addresses, numbers, ids, URLs, names and quoted words, each wording once (variants stay apart).
SELECT outcome, reply_code, reply_enhanced,
       regexp_replace(regexp_replace(coalesce(reply_text, '(no reply)'),
           'https?://\S+|<[^<>\s]*>|"[^"]*"|[[:alnum:]_.+=-]+@[[:alnum:]_.-]+|\m[a-z-]*[0-9_][[:alnum:]_.:+/=-]*|\m[a-z-]+(\.[[:alnum:]_-]+)+',
           '*', 'gi'), '(\*[\s.,:;()-]*){2,}', '* ', 'g') AS wording,
       count(*) AS attempts, count(DISTINCT recipientdomain) AS destinations, min(reply_text) AS example
  FROM pillarbox.attempts
 WHERE ts >= %(since)s AND ts < %(until)s AND outcome IN ('failed', 'deferred')
 GROUP BY 1, 2, 3, 4 ORDER BY attempts DESC, wording LIMIT %(top)s
