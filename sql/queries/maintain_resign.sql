-- Lets another worker maintain.
SELECT pillarbox.lease_give('maintain', %(worker)s)
