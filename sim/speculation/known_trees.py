"""Static trees that were published, in the order of their lists, whose beginnings are trees too.

A node is written as the ranks on its path, `012` for (0, 1, 2). Only the order of Medusa's list is by gain.
"""

from typing import Literal

from sim.theory.draft_trees import DraftTree

TreeName = Literal["medusa_7b_63", "eagle_25"]

#: `mc_sim_7b_63` of github.com/FasterDecoding/Medusa, medusa/model/medusa_choices.py (Apache-2.0): 10, 28, 23 and 2
#: nodes at depth 1 to 4, most useful first; from measured accuracies of Medusa heads on Vicuna-7B.
_MEDUSA_7B_63 = """
    0 00 1 01 2 000 10 02 3 03 4 04 20 05 001 5 06 6 07 010 11 7 08 002 30 09 8 9 100 020 12 003 40 21 004 005 0000 011
    006 030 50 13 007 008 009 60 040 14 70 012 200 31 22 80 050 15 101 021 90 060 0001 16 070
"""

#: The tree of EAGLE-1, called `mc_sim_7b_63` as well: github.com/SafeAILab/EAGLE, eagle/model/choices.py (Apache-2.0):
#: 4, 8, 8, 3 and 2 nodes at depth 1 to 5, by depth.
_EAGLE_25 = "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001"

_WRITTEN: dict[TreeName, str] = {"medusa_7b_63": _MEDUSA_7B_63, "eagle_25": _EAGLE_25}


def known_tree(name: TreeName) -> DraftTree:
    """The tree of that name."""
    return DraftTree(tuple(tuple(map(int, word)) for word in _WRITTEN[name].split()))
