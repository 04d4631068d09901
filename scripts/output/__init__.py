"""output — what commands print: tables for people, JSON for programs, and consent before a change."""
