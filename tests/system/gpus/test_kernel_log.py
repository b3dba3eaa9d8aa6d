"""What the kernel says about GPUs: records in the form of /dev/kmsg, in a file."""

from __future__ import annotations

from pathlib import Path

from oarlock.system.gpus.kernel_log import KernelLog

BEFORE = "4,1,10,-;NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
OTHER = "6,2,11,-;eth0: link is up\n SUBSYSTEM=net\n"
XID = "4,3,12,-;NVRM: Xid (PCI:0000:02:00): 94, pid=7, name=python, Contained ECC error\n"


def test_what_was_said_since_and_only_about_gpus(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    file.write_text(BEFORE)
    log = KernelLog(file)
    assert log.about_gpus() == []
    with file.open("a") as kernel:
        kernel.write(OTHER + XID)
    expected = ["NVRM: Xid (PCI:0000:02:00): 94, pid=7, name=python, Contained ECC error"]
    assert log.about_gpus() == expected
    assert log.about_gpus() == expected  # a second task may have died of it, too
    log.close()
    log.close()


def test_only_what_was_said_after_a_mark(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    file.write_text("")
    log = KernelLog(file)

    def say(*numbers: int) -> None:
        with file.open("a") as kernel:
            kernel.writelines(f"4,3,12,-;NVRM: line {number}\n" for number in numbers)

    say(1)
    first = log.mark()
    assert log.about_gpus(first) == []
    say(2)
    second = log.mark()
    say(*range(3, 203))  # so many that the oldest are dropped
    assert log.about_gpus(first) == log.about_gpus(second) == log.about_gpus()
    assert log.about_gpus()[-1] == "NVRM: line 202"
    third = log.mark()
    assert log.about_gpus(third) == []
    say(203)
    assert log.about_gpus(third) == ["NVRM: line 203"]
    log.close()


def test_a_log_that_may_not_be_read_says_nothing(tmp_path: Path) -> None:
    log = KernelLog(tmp_path / "missing")
    assert log.about_gpus(log.mark()) == []
    log.close()


def test_the_real_one_is_read_without_waiting() -> None:
    log = KernelLog()
    assert isinstance(log.about_gpus(), list)
    log.close()
