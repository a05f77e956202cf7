"""Predict the run time of a traced program under other conditions."""
