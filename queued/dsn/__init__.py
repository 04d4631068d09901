"""dsn — delivery status notifications: which are requested, how they are composed and queued."""
