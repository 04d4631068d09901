"""sql — the schema, the migrations and the queries as package data

Owns: nothing but the files beside it; this module makes them findable when Pillarbox is installed.
"""
