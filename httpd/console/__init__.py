"""console — pages in a browser, for people who sign in: held mail is read safely, released and deleted

Owns: HTML, sessions and forms. What is done with mail is done by operate, as for the API and for the command line.
"""
