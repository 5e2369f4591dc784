"""The paged KV pool as integer counts: who holds which block never matters, only how many are held.

Rules of docs/background/server.md, "KV blocks" (vLLM `kv_cache_manager.py`): a request holds ceil(slots / block_size)
blocks, keeps them when drafts are rejected, and gives them back when it finishes or is preempted.
"""

from sim.errors import InvariantError


class BlockPool:
    """`num_blocks` blocks of `block_size` tokens each.

    Attributes:
        free: blocks that nobody holds.
    """

    __slots__ = ("block_size", "free", "num_blocks")

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size, self.free = num_blocks, block_size, num_blocks

    @property
    def used(self) -> int:
        """Blocks held by requests."""
        return self.num_blocks - self.free

    def blocks_for(self, slots: int) -> int:
        """Blocks that hold `slots` tokens."""
        return -(-slots // self.block_size)

    def take(self, num_blocks: int) -> None:
        """Hand out blocks; the caller has checked `free`."""
        self.free -= num_blocks

    def give_back(self, num_blocks: int) -> None:
        """Take back the blocks of a finished or preempted request."""
        self.free += num_blocks

    def check(self, held: int) -> None:
        """Free and held blocks make up the pool, and neither is negative.

        Raises:
            InvariantError: they do not.
        """
        if self.free < 0 or held < 0 or self.free + held != self.num_blocks:
            raise InvariantError(f"KV blocks: {self.free} free + {held} held != {self.num_blocks}")
