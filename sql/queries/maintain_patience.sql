-- For this transaction: no statement takes longer than so many milliseconds.
SELECT set_config('statement_timeout', %(milliseconds)s::text, true)
