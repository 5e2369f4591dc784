"""Fitting the cost model's parameters to measured times."""
