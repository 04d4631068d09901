"""pacing — decides when a delivery may begin

Owns: rates, limits of concurrency, suspends and delivery windows, alone and shared between workers.
"""
