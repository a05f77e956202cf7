"""The noise source, a model of a monitoring agent: datasets of its bursts."""
