"""webhooks — brings events of recipients to HTTP endpoints, at least once and in order."""
