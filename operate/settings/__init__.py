"""settings — what operators set beside the mail: suspends, suppressions and schedules, with preview, audit and undo."""
