-- Sets one setting of this session.
SELECT set_config(%(name)s, %(value)s, false)
