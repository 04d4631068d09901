-- Forgets a schedule.
DELETE FROM pillarbox.schedules WHERE id = %(id)s
