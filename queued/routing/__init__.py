"""routing — the hosts that mail goes to, and our address that it leaves from

Owns: routes, MX and addresses by DNS, the memory of dead hosts, source addresses and their warm-up.
"""
