"""mime — reads a message safely and shows it: no markup is run, nothing is fetched, no control character gets out."""
