"""httpd — the API over HTTP: programs send mail, follow it, and do what operators and reviewers do

Owns: HTTP. What is done with mail is done by smtpd's rooms and by operate, as for SMTP and for the command line.
"""
