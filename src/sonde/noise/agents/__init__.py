"""Monitoring agents: their recipes, and agents on this machine."""
