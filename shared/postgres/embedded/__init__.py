"""embedded — a PostgreSQL of our own under `var`, for `database.uri: "embedded:"`."""
