-- Lists every body by id.
COPY (SELECT id FROM pillarbox.messages) TO STDOUT (FORMAT csv)
