"""condition — the language that selects recipients: read, checked and written; operate/condition makes it SQL."""
