-- Room of bodies that are gone is kept for the next ones. Bodies come and go within seconds, so vacuum would find the end of
-- the table empty again and again, take a lock that stops all mail to cut it off, and the next bodies would have PostgreSQL
-- write each of those pages with zeros first: a third of its time for a message of 1 MB. After a flood that will not come
-- again, VACUUM (TRUNCATE) pillarbox.messages gives the room back to the file system.
SET LOCAL search_path = pillarbox;

ALTER TABLE messages SET (vacuum_truncate = off, toast.vacuum_truncate = off);
ALTER TABLE refcounts SET (vacuum_truncate = off);
ALTER TABLE released SET (vacuum_truncate = off);
