-- What must agree after pgmq's drain.
SELECT (SELECT count(*) FROM pgmq.q_bench) AS waiting, (SELECT count(*) FROM pgmq.a_bench) AS archived
