"""All plots, by their names."""

from __future__ import annotations

from tests.simulator.enumeration.almanac import ALMANAC
from tests.simulator.enumeration.errand import ERRAND
from tests.simulator.enumeration.purchase import PURCHASE
from tests.simulator.enumeration.purse import PURSE
from tests.simulator.enumeration.rounds import NIGHT
from tests.simulator.enumeration.visit import VISIT
from tests.simulator.enumeration.voyage import VOYAGE

PLOTS = {plot.name: plot for plot in (PURCHASE, VISIT, VOYAGE, ERRAND, NIGHT, PURSE, ALMANAC)}
