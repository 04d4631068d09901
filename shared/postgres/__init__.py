"""postgres — the door to PostgreSQL: connections, queries by name, migrations, notifications."""
