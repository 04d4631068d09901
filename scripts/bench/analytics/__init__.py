"""analytics — measures how fast history is exported and reported on, and the effect on a live queue."""
