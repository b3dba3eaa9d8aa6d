from __future__ import annotations

from oarlock.agent.lead.agents.placement import Agent, place, slots
from oarlock.agent.protocol.host_status import Status


def agent(name: str, ports: int = 2, ready: bool = True, **slots: int) -> Agent:
    number = int(name.rpartition("-")[2])
    status = Status(0, 0, ready, tuple(7000 + port for port in range(ports)), slots)
    return Agent(name, "uid", "pod", f"10.0.0.{number}", lambda _: None, status=status)


def test_tasks_go_to_agents_in_their_order_not_by_their_spelling() -> None:
    agents = [agent(f"worker-{number}", worker=1) for number in (10, 9, 0)]
    placement = place(agents, {"worker": 3})
    assert placement.places == {"worker-0": ["worker-0"], "worker-9": ["worker-1"], "worker-10": ["worker-2"]}
    assert placement.addresses["worker-2"] == "10.0.0.10:7000"


def test_the_chief_is_on_its_own_agent_and_leads() -> None:
    agents = [agent("worker-0", worker=1), agent("ps-0", ps=1), agent("chief-0", chief=1)]
    placement = place(agents, {"chief": 1, "worker": 1, "ps": 1})
    assert [task.name for task in placement.tasks] == ["chief-0", "worker-0", "ps-0"]
    assert placement.places["chief-0"] == ["chief-0"]


def test_tasks_on_one_agent_have_ports_of_their_own() -> None:
    placement = place([agent("machine-0", ports=3, worker=2, ps=1)], {"worker": 2, "ps": 1})
    assert sorted(placement.addresses.values()) == ["10.0.0.0:7000", "10.0.0.0:7001", "10.0.0.0:7002"]


def test_who_is_not_ready_or_not_there_hosts_nothing() -> None:
    gone = agent("machine-1", worker=1)
    gone.is_connected = False
    agents = [agent("machine-0", worker=1), gone, agent("machine-2", ready=False, worker=1)]
    assert slots(agents) == 1
    assert place(agents, {"worker": 3}).size("worker") == 1


def test_no_more_than_is_wanted_is_placed() -> None:
    placement = place([agent("machine-0", ports=5, worker=5)], {"worker": 2})
    assert placement.size("worker") == 2
