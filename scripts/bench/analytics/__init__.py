"""analytics — how fast history is exported and reported on, and what a live queue feels of it."""
