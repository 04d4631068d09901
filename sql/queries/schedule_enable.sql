-- Lets a schedule be sent from this occurrence on, whatever disabled it.
UPDATE pillarbox.schedules SET enabled = true, next_at = %(next_at)s, error = NULL WHERE id = %(id)s
