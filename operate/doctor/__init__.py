"""doctor — examines database, workers and server, and names remedies."""
