"""Written for images of the older world: CLUSTER_CONFIG and POD_NAME, a server and a client."""

import json
import os
import socket
import time

cluster = json.loads(os.environ["CLUSTER_CONFIG"])
role, index = os.environ["POD_NAME"].rsplit("-", 1)
host, port = cluster[role][int(index)].split(":")
if role == "ps":
    # All get them, and nobody leaves before all have: with worker 0 the run ends, and with it the server.
    with socket.create_server((host, int(port))) as server:
        clients = [server.accept()[0] for _ in cluster["worker"]]
        for client in clients:
            client.sendall(b"variables")
        for client in clients:
            client.recv(64)
        for client in clients:
            client.close()
        server.accept()  # as servers do, until it is stopped
host, port = cluster["ps"][0].split(":")
deadline = time.monotonic() + 250
while True:
    try:
        with socket.create_connection((host, int(port)), timeout=60) as line:
            print(f"{role} {index} of {len(cluster[role])} got {line.recv(64).decode()}", flush=True)
            line.sendall(b"thanks")
            line.recv(64)
        break
    except ConnectionRefusedError:
        assert time.monotonic() < deadline, "the parameter server does not answer"
        time.sleep(0.01)
