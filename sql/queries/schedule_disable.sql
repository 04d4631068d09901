-- Disables a schedule that cannot be sent, with the reason; whether it was still due with this occurrence.
SELECT pillarbox.schedule_disable(%(schedule)s, %(occurrence)s, %(reason)s) AS disabled
