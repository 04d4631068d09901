"""accounts — `pillarbox accounts`: account mail from the database itself."""
