"""policy — the operator's rules at each phase of a session."""
