"""poisoned — healthy mail beside 10,000 poisoned domains."""
