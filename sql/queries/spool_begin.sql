-- Opens the one transaction of a group commit and fixes how durable its COMMIT is, in a single round trip.
BEGIN; SET LOCAL synchronous_commit = {synchronous_commit}
