"""Counts of several processes in one memory."""

from __future__ import annotations

import os
import threading

from oarlock.serving.counters import TIMES, Blocks, Key, quantile


def test_any_replica_reads_what_all_have_counted() -> None:
    blocks = Blocks(3)
    for block in (0, 1):
        child = os.fork()
        if child == 0:
            for _ in range(1000):
                blocks.counters(block).add("requests_total", code=200)
            os._exit(0)
        os.waitpid(child, 0)
    ours = blocks.counters(2)
    ours.add("requests_total", 5, code=400)
    text = ours.render()
    assert 'oarlock_requests_total{code="200"} 2000\n' in text
    assert 'oarlock_requests_total{code="400"} 5\n' in text
    assert "# TYPE oarlock_requests_total counter\n" in text


def test_the_next_replica_continues_the_counts_but_not_what_was_waiting() -> None:
    blocks = Blocks(1)
    first = blocks.counters(0)
    first.add("rows_total", 7)
    first.set("queue_rows", 9)
    second = blocks.counters(0)
    second.add("rows_total", 1)
    assert blocks.sums()[Key("counter", "rows_total", "")] == [8]
    assert blocks.sums()[Key("gauge", "queue_rows", "")] == [0]


def test_threads_lose_no_count() -> None:
    counters = Blocks(1).counters(0)

    def count() -> None:
        for _ in range(5000):
            counters.add("rows_total")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "oarlock_rows_total 20000\n" in counters.render()


def test_a_histogram_adds_up_and_knows_its_quantiles() -> None:
    blocks = Blocks(2)
    for block in (0, 1):
        for _ in range(99):
            blocks.counters(block).observe("request_seconds", 0.001)
        blocks.counters(block).observe("request_seconds", 30.0)
    counts = blocks.sums()[Key("histogram", "request_seconds", "")]
    assert quantile("request_seconds", counts, 0.5) == 0.001
    assert quantile("request_seconds", counts, 0.999) == 33.0
    text = blocks.counters(0).render()
    assert 'oarlock_request_seconds_bucket{le="0.001"} 198\n' in text
    assert 'oarlock_request_seconds_bucket{le="+Inf"} 200\n' in text
    assert "oarlock_request_seconds_count 200\n" in text
    assert quantile("request_seconds", [0.0] * (len(TIMES) + 2), 0.5) is None


def test_a_full_block_costs_new_metrics_and_no_old_ones() -> None:
    blocks = Blocks(2)
    counters = blocks.counters(0)
    counters.add("requests_total", code=200)
    for number in range(2000):
        counters.add("requests_total", code=number, path="x" * 90)
    counters.add("requests_total", code=200)
    assert blocks.sums()[Key("counter", "requests_total", 'code="200"')] == [2]
    assert not any(True for _ in blocks.entries(1))


def test_labels_cannot_break_the_format() -> None:
    counters = Blocks(1).counters(0)
    counters.add("requests_total", path='a"b\\c\nd')
    assert 'oarlock_requests_total{path="a\\"b\\\\c\\nd"} 1\n' in counters.render()
