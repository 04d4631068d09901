-- Makes an empty database for a peer, or the one the others are copied from.
CREATE DATABASE {table}
