"""How long forward passes take; one file per kind of cost model."""
