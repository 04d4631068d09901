"""login — authentication of clients: AUTH, users, passwords, and failures."""
