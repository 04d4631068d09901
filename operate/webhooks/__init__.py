"""webhooks — HTTP endpoints that get events about mail."""
