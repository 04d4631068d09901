"""message — what is done with content between the final dot and its 250."""
