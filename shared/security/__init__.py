"""security — passwords as SCRAM keeps and compares them."""
