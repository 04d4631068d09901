"""shapes — the forms of the JSON that commands print, as models that make its schema."""
