"""message — the processing of content between the final dot and its 250."""
