"""Benches of the power stack."""
