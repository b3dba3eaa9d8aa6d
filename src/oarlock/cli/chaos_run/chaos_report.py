"""What `oarlock chaos` prints: a line per fault as it happens, and a summary. Pure."""

from __future__ import annotations

from oarlock.cli.chaos_run.faults_drawn import InflictedFault, Report
from oarlock.units import plural


def beginning(elapsed: float, fault: InflictedFault) -> str:
    """Return the first half of a fault's line."""
    pause = f" for {fault.pause:g}s" if fault.kind == "pause" else ""
    return f"{elapsed:6.1f}s  {fault.kind} {fault.target}{pause}"


def outcome(fault: InflictedFault) -> str:
    """Return the second half: the last step before the fault is known only now."""
    same = fault.formed is None and fault.kind == "pause"  # no work was lost
    at = f" at step {fault.step}" if fault.step is not None and not same else ""
    return f"{at}: {_outcome(fault)}"


def _outcome(fault: InflictedFault) -> str:
    if fault.problem is not None:
        return fault.problem
    if fault.seconds is None:
        return "the run ended before it could recover"
    step = f" at step {fault.resumed}" if fault.resumed is not None else ""
    text = f"resumed{step} after {fault.seconds:.2f}s"
    if fault.formed is not None and fault.resumed is not None:
        text += f", repeated {_steps(fault.repeated, fault.is_about)}"
    return text


def summary(report: Report) -> list[str]:
    """Return the results of a session."""
    recovery = report.recovery
    times = [f"{name} {value:.2f}s" for name, value in recovery.items() if value is not None]
    is_about = any(fault.is_about for fault in report.recovered)
    facts = [
        ("faults", f"{len(report.faults)}, {len(report.recovered)} recovered"),
        ("refused", str(report.refused) if report.refused else ""),
        ("time to recover", ", ".join(times)),
        ("steps repeated", ("about " if is_about and report.repeated else "") + str(report.repeated)),
        ("goodput", f"{report.goodput:.0%}" if report.goodput is not None else ""),
        ("generations", str(report.generations)),
        ("seed", str(report.seed)),
        ("run", report.state),
        ("ended early", report.problem or ""),
    ]
    return [f"{name:<16} {value}" for name, value in facts if value]


def _steps(count: int, is_about: bool) -> str:
    return ("about " if is_about and count else "") + (plural(count, "step") if count else "no step")
