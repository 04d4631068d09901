-- Opens a snapshot and keeps it, as a backup or a long report does.
BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pillarbox.settings
