"""A purse: the machine that the tests of the command line call, break and repair."""

from __future__ import annotations

from perdure import machine


class Purse(machine.Machine):
    """So many coins."""

    coins: int = 0

    @machine.init
    def sewn(self, coins: int = 0) -> None:
        """So many at first."""
        self.coins = coins

    @machine.call
    def put(self, coins: int) -> int:
        """More of them."""
        self.coins += coins
        return self.coins

    @machine.signal
    def tear(self) -> None:
        """It breaks."""
        raise ValueError("the purse is torn")

    @machine.repair
    def mended(self, coins: int) -> None:
        """So many were found."""
        self.coins = coins
