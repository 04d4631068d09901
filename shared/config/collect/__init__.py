"""collect — the models of collect.yaml."""
