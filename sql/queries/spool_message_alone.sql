-- The body of a message that is committed without a group.
INSERT INTO pillarbox.messages (id, size, smtputf8, content) VALUES (%b, %b, %b, %b)
