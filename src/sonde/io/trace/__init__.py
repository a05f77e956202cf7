"""What a trace says: datasets of traces, their analysis, findings, verdicts and figures."""
