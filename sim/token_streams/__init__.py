"""Real token streams: prompt and output ids of recorded requests, for drafters that look things up in tokens."""
