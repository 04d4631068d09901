-- Notes that a command begins to act, and returns the number of its audit row.
INSERT INTO pillarbox.audit (operator, verb, condition, argument, reason, undoes, wanted)
VALUES (%(operator)s, %(verb)s, %(condition)s, %(argument)s::jsonb, %(reason)s, %(undoes)s, %(wanted)s)
RETURNING id
