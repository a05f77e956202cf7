"""Workflows: jobs that wait for each other."""
