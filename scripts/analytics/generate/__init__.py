"""generate — `pillarbox analytics generate`: writes synthetic history, to try reports and to measure."""
