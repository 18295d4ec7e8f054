"""The groups of a client's verbs, as ``engine.queues``: each is imported and made when it is first used.

Most programs use one or two of them, and what it costs to import the others is a good part of what their start costs.
Workflow code may use none of them, and is refused before the import, which would read files in a turn.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from perdure.client import validation
from perdure.client.parts import Doors
from perdure.clock import Computer
from perdure.store.base import Store

if TYPE_CHECKING:
    from perdure.client.alerting.rules import AlertRules
    from perdure.client.archive import Archive
    from perdure.client.breakers import Breakers
    from perdure.client.checks import Checks
    from perdure.client.client import Client
    from perdure.client.clock import Timekeeping
    from perdure.client.finding.saved import SavedSearches
    from perdure.client.kinds import LimitedKinds
    from perdure.client.leaders import Leaders
    from perdure.client.operations import Operations
    from perdure.client.outages import Outages
    from perdure.client.queues import Queues
    from perdure.client.recovery import Recovery
    from perdure.client.reply import ReplyAddresses
    from perdure.client.schedules import Schedules
    from perdure.client.streams import EventStreams


class Groups:
    """The part of a client that gives its groups of verbs."""

    store: Store
    doors: Doors
    machine: Computer

    @cached_property
    def queues(self) -> Queues:
        """The verbs on queues."""
        validation.outside_a_turn()
        from perdure.client.queues import Queues

        return Queues(self.store)

    @cached_property
    def kinds(self) -> LimitedKinds:
        """The verbs on kinds with limits."""
        validation.outside_a_turn()
        from perdure.client.kinds import LimitedKinds

        return LimitedKinds(self.store, self._client.registry)

    @cached_property
    def recovery(self) -> Recovery:
        """The verbs on automatic recovery."""
        validation.outside_a_turn()
        from perdure.client.recovery import Recovery

        return Recovery(self.store)

    @cached_property
    def breakers(self) -> Breakers:
        """The verbs on circuit breakers."""
        validation.outside_a_turn()
        from perdure.client.breakers import Breakers

        return Breakers(self.store)

    @cached_property
    def outages(self) -> Outages:
        """The verbs on outages."""
        validation.outside_a_turn()
        from perdure.client.outages import Outages

        return Outages(self.store)

    @cached_property
    def alerts(self) -> AlertRules:
        """The verbs on rules that alert."""
        validation.outside_a_turn()
        from perdure.client.alerting.rules import AlertRules

        return AlertRules(self.store, self.machine)

    @cached_property
    def searches(self) -> SavedSearches:
        """The verbs on saved searches."""
        from perdure.client.finding.saved import SavedSearches

        return SavedSearches(self.store)

    @cached_property
    def leaders(self) -> Leaders:
        """The verbs on leaders."""
        validation.outside_a_turn()
        from perdure.client.leaders import Leaders

        return Leaders(self.store, self.machine, self.doors.outage, self.doors.telemetry)

    @cached_property
    def clock(self) -> Timekeeping:
        """The verbs on the store's clock."""
        validation.outside_a_turn()
        from perdure.client.clock import Timekeeping

        return Timekeeping(self.store)

    @cached_property
    def streams(self) -> EventStreams:
        """The verbs on event streams."""
        validation.outside_a_turn()
        from perdure.client.streams import EventStreams

        return EventStreams(self.store, self.machine)

    @cached_property
    def schedules(self) -> Schedules:
        """The verbs on schedules."""
        validation.outside_a_turn()
        from perdure.client.schedules import Schedules

        return Schedules(self._client)

    @cached_property
    def operations(self) -> Operations:
        """The verbs on many processes."""
        validation.outside_a_turn()
        from perdure.client.operations import Operations

        return Operations(self._client)

    @cached_property
    def checks(self) -> Checks:
        """The verbs on checks."""
        validation.outside_a_turn()
        from perdure.client.checks import Checks

        return Checks(self._client)

    @cached_property
    def archive(self) -> Archive:
        """Processes as lines of JSON."""
        validation.outside_a_turn()
        from perdure.client.archive import Archive

        return Archive(self._client)

    @cached_property
    def reply_addresses(self) -> ReplyAddresses:
        """The processes behind reply addresses."""
        validation.outside_a_turn()
        from perdure.client.reply import ReplyAddresses

        return ReplyAddresses(self._client)

    @property
    def _client(self) -> Client:
        return cast("Client", self)

    async def lead_no_more(self) -> None:
        """End what this client leads in, if it ever did."""
        if "leaders" in vars(self):
            await self.leaders.close()
