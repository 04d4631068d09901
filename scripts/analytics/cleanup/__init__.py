"""cleanup — `pillarbox analytics cleanup`: what of history may go, once the lake verifiably has it."""
