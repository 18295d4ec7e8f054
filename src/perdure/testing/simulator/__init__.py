"""The simulator: whole clusters of the real engine in virtual time, from one seed, with every fault one can think of.

::

    from perdure.testing.simulator import Cluster, simulate

    async def scenario(cluster: Cluster) -> None:
        handle = await cluster.client.start(order.options(key="order/A-17"), "A-17")
        assert await handle.result() == "shipped"

    def test_orders_survive_everything() -> None:
        for seed in range(200):
            simulate(scenario, seed, workflows=[order]).check()

One history runs in one OS process and one thread: real engines (workers with their supervisors, and clients) on the
real SQLite store, on an event loop with virtual time. Which OS process goes on next, how long each call to the store
takes, whether it fails before or after it was done, who is killed, paused, blocked or stopped, and how the clock
jumps, is drawn from the seed. After every transaction the laws of the engine are checked on the records that it has
touched. The same seed gives the same history, byte for byte.

What a scenario is handed is a :class:`Cluster`:

* ``cluster.client``: an :class:`~perdure.Engine` that only starts, asks and tells. It is never struck.
* ``cluster.draw(n)``, ``cluster.chance(p)``, ``cluster.pick(options)``: draws of the history's own; the answer 0,
  False or the first option is the boring one, to which a failing history is shrunk.
* ``cluster.workers``: each :class:`Node` that works; ``cluster.node(name, work=…, faulty=…)`` makes another one. A
  node has ``start()``, ``kill()`` (no ``finally`` runs), ``pause()``, ``resume()``, ``terminate()`` (SIGTERM),
  ``alive``, ``await opened()`` (its engine), ``await ended()``, and ``await call(function)``, which runs
  ``await function(engine)`` as part of that OS process: it dies with it, and then raises :class:`NodeKilled`.
* ``cluster.restore(copy)``: a backup (``cluster.server.back_up()``) is put back under running nodes, if the swarm
  allows it (``Swarm(backups=True)``).
* ``cluster.fail_over(lost)``: the server goes on as a standby that lacks its last commits, if the swarm says that it
  may lag (``Swarm(lag=3)``); every connection is lost, and the engine does what it does on PostgreSQL.
* ``await cluster.die()``: called by a step, kills the OS process in which it runs.
* ``await asyncio.sleep(…)`` and ``asyncio.get_running_loop().time()`` are virtual.
* ``cluster.heal()`` ends the storm and all faults and starts dead nodes again; ``await cluster.settled()`` waits until
  every process has ended or waits for a person, and raises :class:`Violation` if nothing moves any more. Both are
  done after the scenario anyway.
* ``cluster.rows()``: every process as it is in the database now; ``cluster.require(law, holds, text)`` raises
  Violation with a law's name; ``cluster.probe(name)`` counts that something has happened; ``cluster.note(text)``
  writes into the log. ``cluster.swarm`` is the weather, ``cluster.engines`` are all engines that ever were.
* ``cluster.registry`` is a function that gives what a starting node hosts; another one in its place deploys other code
  with the next start of each node. What a scenario does before it first awaits comes before the first worker.

``simulate`` answers a :class:`History`: ``violation``, ``choices``, ``log.lines()``, ``digest()``, ``faults``,
``probes``, ``seconds``, ``calls``; its ``check()`` raises the violation. ``swarm=Swarm(…)`` sets the weather instead
of drawing it: ``Swarm()`` is a calm one. A scenario may draw its own: by a function that is its attribute ``weather``
and is handed the choices. Ordinary steps run in virtual threads. Code that reaches for the real clock, chance, a
thread or another OS process ends the history with :class:`Escape`.
"""

from perdure.testing.simulator.cluster import Cluster
from perdure.testing.simulator.history import History, Scenario, simulate
from perdure.testing.simulator.node import Node, NodeKilled
from perdure.testing.simulator.swarm import Swarm
from perdure.testing.simulator.violation import Escape, Violation

__all__ = ["Cluster", "Escape", "History", "Node", "NodeKilled", "Scenario", "Swarm", "Violation", "simulate"]
