-- Erasing a person. An address is given in parts: sql/schema/24_erasure.sql.

-- name: erasure_add
-- Adds recipients that only the lake has to those that are erased.
SELECT pillarbox.erasure_add(%(erasure)s, %(ids)s::bigint[], %(messages)s::uuid[])

-- name: erasure_begin
-- Begins an erasure, or goes on with one that was cut off; the number of its audit row.
SELECT pillarbox.erasure_begin(%(target)s, %(pattern)s, %(operator)s, %(reason)s, %(argument)s::jsonb, %(wanted)s) AS id

-- name: erasure_count
-- What names an address beside history.
SELECT * FROM pillarbox.erasure_count(%(target)s, %(localpart)s, %(domains)s::text[], %(pattern)s)

-- name: erasure_count_day
-- The finished recipients of a day that go to an address or come from it.
SELECT * FROM pillarbox.erasure_count_day(%(since)s, %(until)s, %(localpart)s, %(domains)s::text[])

-- name: erasure_find
-- Collects the finished recipients of a day.
SELECT pillarbox.erasure_find(%(erasure)s, %(since)s, %(until)s, %(localpart)s, %(domains)s::text[]) AS found

-- name: erasure_finish
-- Notes that nothing is left.
SELECT pillarbox.erasure_finish(%(erasure)s)

-- name: erasure_history
-- Deletes the collected recipients from a day of a table of history, and the address from the texts of others.
SELECT * FROM pillarbox.erasure_history(%(erasure)s, %(history)s, %(since)s, %(until)s, %(pattern)s)

-- name: erasure_known
-- The collected recipients, which from here on are deleted.
SELECT queue__id AS id, messages__id::text AS message FROM pillarbox.erasure_known(%(erasure)s)

-- name: erasure_queue
-- Deletes queued mail to and from an address, save what a worker is sending.
SELECT * FROM pillarbox.erasure_queue(%(erasure)s, %(localpart)s, %(domains)s::text[])

-- name: erasure_rest
-- Deletes what is beside history, and keeps a suppression by its hash.
SELECT * FROM pillarbox.erasure_rest(%(erasure)s, %(target)s, %(localpart)s, %(domains)s::text[], %(pattern)s, %(suppress)s)
