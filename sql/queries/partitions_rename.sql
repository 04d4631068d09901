-- Gives a leaf that keeps its ids another name.
ALTER TABLE pillarbox.{leaf} RENAME TO {name}
