"""demo — `pillarbox demo`: the whole system with real mail, in a folder of its own, and a ledger at the end."""
