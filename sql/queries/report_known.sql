-- Whether we have sent this message to this address, or are at it.
SELECT pillarbox.report_known(%(message)s, %(localpart)s, %(domain)s) AS known
