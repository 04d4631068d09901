"""poisoned — measures healthy mail beside 10,000 domains that do not answer."""
