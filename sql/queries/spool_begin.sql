-- Opens the one transaction of a group commit and fixes how durable its COMMIT is, in a single round trip; a warning that it is
-- not is sent to us, whatever this role's setting says.
BEGIN; SET LOCAL synchronous_commit = {synchronous_commit}; SET LOCAL client_min_messages = warning
