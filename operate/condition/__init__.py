"""condition — selects recipients of the queue: one language for every verb and every interface."""
