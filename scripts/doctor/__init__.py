"""doctor — `pillarbox doctor`: examines database, workers and server, and says what to do."""
