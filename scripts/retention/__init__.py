"""retention — `pillarbox retention`: deletes held mail and audit rows that are older than their retention."""
