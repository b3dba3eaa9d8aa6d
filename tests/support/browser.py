"""A real Chromium without a window, told what to do over its debugging protocol."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Message, Request, TextMessage

from tests.support.debian_packages import program_of
from tests.support.waiting import eventually

_DEADLINE = 120  # seconds for one step of the browser


def program() -> str:
    """The browser's path. Skips the test where there is none; CI installs it, if it may."""
    found = program_of("chromium", "chromium-browser", "google-chrome")
    if found is None:
        pytest.skip("there is no Chromium here; install the package `chromium`")
    return found


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start one with a profile of its own."""
    profile = folder / "profile"
    command = [
        *(program(), "--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}"),
        *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"),
        *("--disable-background-networking", "--disable-component-update", "about:blank"),
    ]
    log = (folder / "chromium.log").open("wb")
    with log, subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True) as process:
        try:
            port_file = profile / "DevToolsActivePort"
            said = eventually(
                lambda: port_file.read_text().split() if port_file.exists() else None,
                "Chromium's debugging port",
                evidence=lambda: (folder / "chromium.log").read_text()[-2000:],
            )
            yield Browser(int(said[0]))
        finally:
            process.terminate()
            process.wait(_DEADLINE)


class Browser:
    """Opens pages."""

    def __init__(self, port: int) -> None:
        self._port = port

    @contextmanager
    def page(self, url: str, width: int = 1000, height: int = 900) -> Iterator[Page]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_DEADLINE)
        connection.request("PUT", "/json/new?about:blank")
        address = json.loads(connection.getresponse().read())["webSocketDebuggerUrl"]
        connection.close()
        page = Page(address)
        try:
            page.command("Page.enable")
            page.command("Runtime.enable")
            page.command("Log.enable")
            page.command(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=height,
                deviceScaleFactor=1,
                mobile=False,
            )
            page.command("Page.navigate", url=url)
            yield page
        finally:
            page.close()


class Page:
    """One tab."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._socket = socket.create_connection((parts.hostname, parts.port or 80), timeout=_DEADLINE)
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._numbers = itertools.count(1)
        self._answers: dict[int, Any] = {}
        self._text = ""
        self._is_open = False
        self.complaints: list[str] = []  # errors that the page's scripts raised or the console shows
        self._socket.sendall(self._protocol.send(Request(host=parts.netloc, target=parts.path)))
        while not self._is_open:
            self._receive()

    def close(self) -> None:
        self._socket.close()

    def command(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        content = json.dumps({"id": number, "method": method, "params": parameters})
        self._socket.sendall(self._protocol.send(Message(content)))
        while number not in self._answers:
            self._receive()
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        found = self.command(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str, what: str) -> Any:
        """Wait until a JavaScript expression is true; its value."""
        return eventually(
            lambda: self.evaluate(expression),
            what,
            evidence=lambda: f"{self.complaints}; {self.evaluate('document.body.innerText')[:2000]}",
        )

    def text(self, selector: str) -> str:
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def click(self, selector: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def write(self, selector: str, text: str) -> None:
        """Type, as a person does, over what is there."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self.evaluate(f"document.querySelector({json.dumps(selector)}).select?.()")
        self.command("Input.insertText", text=text)

    def draw(self, selector: str, strokes: Sequence[Sequence[tuple[float, float]]]) -> None:
        """Draw with the mouse; places are shares of the element's size."""
        box = self.evaluate(
            f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()"
        )
        for stroke in strokes:
            places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
            self._mouse("mousePressed", *places[0])
            for place in places[1:]:
                self._mouse("mouseMoved", *place)
            self._mouse("mouseReleased", *places[-1])

    def choose_file(self, selector: str, path: Path) -> None:
        root = self.command("DOM.getDocument")["root"]["nodeId"]
        node = self.command("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.command("DOM.setFileInputFiles", files=[str(path)], nodeId=node)

    def screenshot(self, path: Path) -> None:
        found = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def _mouse(self, kind: str, x: float, y: float) -> None:
        self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def _receive(self) -> None:
        data = self._socket.recv(1 << 20)
        assert data, "Chromium closed the connection"
        self._protocol.receive_data(data)
        for event in self._protocol.events():
            if isinstance(event, AcceptConnection):
                self._is_open = True
            elif isinstance(event, TextMessage):
                self._text += event.data
                if event.message_finished:
                    self._note(json.loads(self._text))
                    self._text = ""
            assert not isinstance(event, CloseConnection), event

    def _note(self, message: Any) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
        elif message["method"] == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif message["method"] == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.complaints.append(message["params"]["entry"]["text"])
