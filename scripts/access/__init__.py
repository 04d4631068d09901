"""access — `pillarbox user`, `principal`, `key`: people and applications, their passwords and API keys."""
