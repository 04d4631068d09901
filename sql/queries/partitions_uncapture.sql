-- Takes the note-taking off a leaf.
DROP TRIGGER repartition_capture ON pillarbox.{leaf}
