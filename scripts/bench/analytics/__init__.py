"""analytics — measures exports and reports of history, and their effect on a live queue."""
