"""Datasets of traces, their analysis, findings, verdicts and figures."""
