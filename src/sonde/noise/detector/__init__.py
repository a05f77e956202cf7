"""Runs of a timed loop of collectives with an agent on in some blocks: plan, test, verdict, figures."""
