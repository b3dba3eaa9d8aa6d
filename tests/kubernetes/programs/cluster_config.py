"""Written for CLUSTER_CONFIG and POD_NAME: every task listens at its own address, and calls all the others
at theirs."""

import json
import os
import socket
import threading
import time

cluster = json.loads(os.environ["CLUSTER_CONFIG"])
me = os.environ["POD_NAME"]
peers = {f"{role}-{index}": place for role, places in cluster.items() for index, place in enumerate(places)}


def place(name):
    host, port = peers[name].rsplit(":", 1)
    return host, int(port)


def answer(server, calls):
    for _ in range(calls):
        line, _ = server.accept()
        with line:
            line.sendall(f"{os.environ['OARLOCK_RUN']}/{me}".encode())


def call(name):
    deadline = time.monotonic() + 250
    while True:
        try:
            with socket.create_connection(place(name), timeout=60) as line:
                return line.recv(100).decode()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, f"{name} does not answer at {peers[name]}"
            time.sleep(0.02)


with socket.create_server(place(me)) as server:
    answering = threading.Thread(target=answer, args=(server, len(peers)))
    answering.start()
    print("answered:", *sorted(call(name) for name in peers))
    answering.join()
