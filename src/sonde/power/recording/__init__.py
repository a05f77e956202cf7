"""Recordings of a power stack: datasets of power/1, and their replay under other policies."""
