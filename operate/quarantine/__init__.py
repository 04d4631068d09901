"""quarantine — held mail: listed, shown safely, released, deleted, by those who may decide about it."""
