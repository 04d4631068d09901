"""init — `pillarbox init`: a folder with the configuration of a host, its keys and its first principal."""
