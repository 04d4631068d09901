"""dev — programs that build, check and document Pillarbox; not in the wheel."""
