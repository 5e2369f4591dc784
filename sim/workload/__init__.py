"""The requests: arrivals, lengths, traffic classes, traces."""
