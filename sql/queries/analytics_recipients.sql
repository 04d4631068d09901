-- Lists every recipient that is not finished: its id and its body.
COPY (SELECT id, messages__id FROM pillarbox.queue) TO STDOUT (FORMAT csv)
