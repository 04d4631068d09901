-- Makes one leaf of the queue; false when exactly that leaf is already there.
SELECT pillarbox.queue_leaf_create(%(suffix)s, %(partids)s::text[])
