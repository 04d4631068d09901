"""bounces — bounces and feedback reports that come in

Owns: reading them, what is learnt from them, and keeping them from being delivered.
"""
