"""cleanup — `pillarbox analytics cleanup`: drops history that the lake verifiably has."""
