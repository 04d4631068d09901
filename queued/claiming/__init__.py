"""claiming — the recipients that this worker claims, and their bodies and leases."""
