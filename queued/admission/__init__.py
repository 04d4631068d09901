"""admission — what a delivery passes before its attempt begins, and how much may be under way at once."""
