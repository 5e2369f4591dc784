"""Experiments: cells x arms x replicates run in parallel, the results folder, comparisons and break-even points."""
