"""Rules that draft from tokens alone: pure functions of token streams; what they cost is `sim/speculation`'s."""
