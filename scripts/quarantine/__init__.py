"""quarantine — `pillarbox quarantine`: held mail, shown safely, released, deleted, scanned again."""
