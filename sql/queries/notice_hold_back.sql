-- Lets the notices of a sender, or with no address those of everybody, wait until `due`, and says how many that are.
WITH held AS (
    UPDATE pillarbox.notices SET due = %(due)s
     WHERE due < %(due)s AND (%(domain)s::text IS NULL OR (senderlocalpart = %(localpart)s::text AND senderdomain = %(domain)s::text))
    RETURNING 1
)
SELECT count(*) AS notices FROM held
