-- Whether this worker is the one that maintains, for the length of the lease; asked again, it is renewed.
SELECT pillarbox.lease_take('maintain', %(worker)s, %(lease)s)
