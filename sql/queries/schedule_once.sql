-- Queues one message that is sent no earlier than `deliver_at`; with a key that was used before, the earlier message.
SELECT pillarbox.enqueue(%(sender)s, %(recipients)s, %(content)s, idempotency_key => %(key)s, deliver_at => %(deliver_at)s,
                         priority => %(priority)s, transportid => %(transportid)s, jobid => %(jobid)s, smtputf8 => %(smtputf8)s) AS message
