-- A worker that stops takes itself off the register.
DELETE FROM pillarbox.workers WHERE worker = %(worker)s
