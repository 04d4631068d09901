-- Forgets what this host has reported, for it reports no more.
DELETE FROM pillarbox.volumes WHERE host = %(host)s
