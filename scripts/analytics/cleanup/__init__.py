"""cleanup — `pillarbox analytics cleanup`: drops days of history after verifying their export."""
