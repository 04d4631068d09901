"""report — `pillarbox analytics report`: counts, analyses and the page that shows them."""
