-- Makes pgmq's queue.
SELECT pgmq.create('bench')
