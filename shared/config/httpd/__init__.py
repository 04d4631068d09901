"""httpd — the models of httpd.yaml."""
