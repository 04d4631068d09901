"""rates — how much clients may ask, counted over all processes."""
