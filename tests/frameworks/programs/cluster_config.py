"""Written for images of the older world: CLUSTER_CONFIG and POD_NAME, a server and a client."""

import json
import os
import socket
import time

cluster = json.loads(os.environ["CLUSTER_CONFIG"])
role, index = os.environ["POD_NAME"].rsplit("-", 1)
host, port = cluster[role][int(index)].split(":")
if role == "ps":
    with socket.create_server((host, int(port))) as server:
        while True:
            client, _ = server.accept()
            with client:
                client.sendall(b"variables")
host, port = cluster["ps"][0].split(":")
deadline = time.monotonic() + 30
while True:
    try:
        with socket.create_connection((host, int(port)), timeout=5) as line:
            print(f"{role} {index} of {len(cluster[role])} got {line.recv(64).decode()}")
        break
    except ConnectionRefusedError:
        assert time.monotonic() < deadline, "the parameter server does not answer"
        time.sleep(0.01)
