"""process — one process of httpd and what it serves with, and what several of them share: counts, memory, metrics."""
