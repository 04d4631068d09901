"""accounts — what the collector of account mail costs, beside a bare loop over the same tokens."""
