-- The content of claimed messages.

-- name: hold_missing_body
-- Holds those of these claimed recipients that have no body, with the reason, and returns them by id and token. `partids` are
-- the partitions they are looked for in (queued/claiming/leaves.py).
SELECT id, token
  FROM pillarbox.hold_missing_body(coalesce(%(now)s::timestamptz, now()), %(ids)s::bigint[], %(messages)s::uuid[], %(tokens)s::bigint[],
                                   %(partids)s::text[])

-- name: message_bodies
-- The bodies of claimed recipients.
SELECT id, content, smtputf8 FROM pillarbox.messages WHERE id = ANY(%(ids)s)
