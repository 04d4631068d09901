"""erase — deletes what names a person's address from the lake."""
