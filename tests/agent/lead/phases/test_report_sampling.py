from __future__ import annotations

from oarlock.agent.lead.phases.report_sampling import ReportSampling


def report(t: float) -> dict[str, object]:
    return {"task": "worker-0", "t": t, "step": int(t)}


def test_two_reports_a_second_at_first() -> None:
    sampling = ReportSampling(began=0.0)
    admitted = [t / 10 for t in range(100) if sampling.admits(report(t), is_last=False, now=t / 10)]
    assert len(admitted) == 20


def test_a_day_of_reports_is_a_few_thousand() -> None:
    sampling = ReportSampling(began=0.0)
    admitted = sum(sampling.admits(report(t), is_last=False, now=float(t)) for t in range(86400))
    assert 8000 < admitted < 12000


def test_the_last_report_is_always_admitted_once() -> None:
    sampling = ReportSampling(began=0.0)
    assert sampling.admits(report(1.0), is_last=False, now=1.0)
    assert not sampling.admits(report(1.1), is_last=False, now=1.1)
    assert sampling.admits(report(1.1), is_last=True, now=1.2)
    assert not sampling.admits(report(1.1), is_last=True, now=1.3)
