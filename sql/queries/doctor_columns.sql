-- The columns of queue.
SELECT attname::text AS name FROM pg_attribute WHERE attrelid = 'pillarbox.queue'::regclass AND attnum > 0 AND NOT attisdropped
