"""deadletters — `pillarbox deadletters`: mail that finished without success, sent once more or watched."""
