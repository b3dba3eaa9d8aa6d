"""The agents of a run: which are connected, which holds each seat, and the wish that they all get. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from oarlock.agent.lead.agents.placement import Agent
from oarlock.agent.lead.phases.collaborators import SeatOrder
from oarlock.agent.lead.phases.generation import Generation
from oarlock.agent.net.dropped_messages import DroppedMessages
from oarlock.agent.protocol.outcome import Outcome
from oarlock.agent.protocol.wishes import Order, Over, Wish
from oarlock.run.contract import PREEMPTED

_AHEAD = 10**6  # generations by which an agent's memory may be ahead of the leader's; more is not credible


class Roster:
    """Sends the current wish to every agent that connects, so that a cut connection loses nothing."""

    def __init__(self, seats: SeatOrder, wish: Wish, dropped: DroppedMessages) -> None:
        self._seats = seats
        self._dropped = dropped
        self._agents: dict[str, Agent] = {}
        self.wish = wish
        self.informed: set[str] = set()  # agents that know that the run is over

    def __iter__(self) -> Iterator[Agent]:
        return iter(list(self._agents.values()))

    def __contains__(self, agent: Agent) -> bool:
        """Whether this agent holds its seat, and has not been replaced."""
        return self._agents.get(agent.name) is agent

    def admit(self, agent: Agent) -> str | None:
        """Seat the agent, or return why not. If two agents have the same name, the newer one stays."""
        known = self._agents.get(agent.name)
        if known is not None and known.is_leading:
            return f"{agent.name} leads this run"
        refusal = self._seats.take(agent.name, agent.machine)
        if refusal is not None:
            return refusal
        if known is not None and known.uid == agent.uid:
            agent.status = known.status
        elif known is not None:
            known.send(Over(self.wish.generation, PREEMPTED, replaced=True))
        self._agents[agent.name] = agent
        return None

    def remove(self, agent: Agent) -> None:
        """Remove an agent, unless another has taken its seat."""
        if agent in self:
            del self._agents[agent.name]

    def make(self, wish: Wish) -> None:
        """Send this wish to every agent from now on."""
        self.wish = wish
        for agent in self:
            self.repeat_to(agent)

    def repeat_to(self, agent: Agent) -> None:
        """Send the current wish to an agent if it is connected."""
        if agent.is_connected:
            agent.send(self.wish)
            if isinstance(self.wish, Over):
                self.informed.add(agent.name)

    def order(self, order: Order) -> None:
        """Send this once to every connected agent."""
        for agent in self:
            if agent.is_connected:
                agent.send(order)

    def outcomes_of(self, agent: Agent, generation: Generation) -> list[Outcome]:
        """The outcomes in this generation. An agent speaks only for the tasks placed on it."""
        if agent.status is None or agent.status.generation != generation.number:
            return []
        placed = generation.tasks_on(agent.name)
        found = [outcome for outcome in agent.status.tasks if outcome.name in placed]
        if len(found) < len(agent.status.tasks):
            self._dropped.add(agent.name, "it spoke for a task that is not placed on it")
        return found

    @property
    def are_all_connected(self) -> bool:
        """Whether every agent is connected. An agent that was given up does not count."""
        return all(agent.is_connected for agent in self)

    @property
    def is_preparing(self) -> bool:
        """Whether an agent is preparing its data. The run waits for that, however long it takes."""
        return any(agent.status is not None and agent.status.preparing for agent in self)

    def have_all_cleared(self, generation: int) -> bool:
        """Whether no connected agent has a process of this generation left."""
        return all(
            agent.status is None or agent.status.cleared >= generation for agent in self if agent.is_connected
        )

    def newest_generation(self, known: int) -> int:
        """The newest generation any agent remembers: a replaced leader may have formed one unrecorded."""
        numbers = (agent.status.generation for agent in self if agent.status is not None)
        return max(known, *(number for number in numbers if number <= known + _AHEAD), known)
