"""sending — mail that comes by HTTP: its forms, its MIME, and its way through smtpd's rooms into the queue."""
