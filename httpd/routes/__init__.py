"""routes — what can be asked, one file for each noun; each has a `router`, which httpd/app.py finds

A route takes its caller from httpd/access/needs.py, does what it does by a function of operate/ on a connection of
`caller.acting()`, and returns a form of operate/shapes/. Errors of operate become problems by themselves.
"""
