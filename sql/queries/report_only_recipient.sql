-- The one recipient of a message that has no other, else NULL.
SELECT pillarbox.report_only_recipient(%(message)s) AS address
