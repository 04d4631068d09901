"""login — who a client is: AUTH, users, passwords, and failures."""
