-- Keeps a schedule from being sent until it is enabled.
UPDATE pillarbox.schedules SET enabled = false WHERE id = %(id)s
