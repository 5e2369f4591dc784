"""Which replica serves a request; one file per kind."""
