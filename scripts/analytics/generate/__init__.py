"""generate — `pillarbox analytics generate`: synthetic history, to try reports and to measure."""
