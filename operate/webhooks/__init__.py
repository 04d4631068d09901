"""webhooks — which HTTP endpoints are told what becomes of mail."""
