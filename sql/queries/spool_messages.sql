-- Bodies of a group of submissions.
COPY pillarbox.messages (id, size, smtputf8, content) FROM STDIN (FORMAT BINARY)
