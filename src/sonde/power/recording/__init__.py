"""Recordings of a power stack: datasets of power/1, and what other policies would have made of them."""
