-- Lists the bodies older than an hour that no note gives to the sweep, by id.
COPY (SELECT m.id FROM pillarbox.messages m
       WHERE m.ts < now() - interval '1 hour' AND NOT EXISTS (SELECT FROM pillarbox.released r WHERE r.messages__id = m.id))
  TO STDOUT (FORMAT csv)
