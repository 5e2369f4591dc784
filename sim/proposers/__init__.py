"""Proposers: rules that draft from tokens alone. Pure functions of token streams; what they cost is `sim/speculation`'s."""
