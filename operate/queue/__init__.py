"""queue — looks at the queue and acts on it, one recipient or a million."""
