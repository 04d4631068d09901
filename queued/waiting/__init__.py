"""waiting — for how long what cannot go on is parked, which comes first, and which is ended for another."""
