"""condition — which recipients of the queue an operator means: one language for every verb and every face."""
