-- Reads up to `batch` messages, invisible to others for fifteen minutes as our lease is.
SELECT * FROM pgmq.read('bench', 900, %(batch)s)
