-- Whether an address or its domain is suppressed, for policy at RCPT.
SELECT 1 FROM pillarbox.suppressions
 WHERE target IN (%(value)s::text, substring(%(value)s::text from '@([^@]*)$')) AND active AND (expires IS NULL OR expires > now())
