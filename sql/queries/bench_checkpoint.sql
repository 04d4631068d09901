-- Moves the next checkpoint out of the cell, and gives every cell the same first writes of its pages.
CHECKPOINT
