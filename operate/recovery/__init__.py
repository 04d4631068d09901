"""recovery — a queue that was restored from a backup: held, compared with what was delivered since, released."""
