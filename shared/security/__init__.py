"""security — the storage and comparison of passwords for SCRAM."""
