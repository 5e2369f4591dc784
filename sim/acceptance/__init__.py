"""How many drafts a verification step accepts: the tape (`base.py`) and one file per kind of acceptance."""
