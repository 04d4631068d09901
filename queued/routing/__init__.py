"""routing — where mail goes and from which of our addresses

Owns: routes, MX and addresses by DNS, what is known of dead hosts, source addresses and their warm-up.
"""
