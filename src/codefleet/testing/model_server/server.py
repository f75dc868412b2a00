"""The server: one thread a connection, loopback only, deterministic by its scripts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Protocol, Self

from codefleet.testing.model_server.anthropic import Anthropic
from codefleet.testing.model_server.conversation import Asked, Conversation, Conversations, Reply, Request
from codefleet.testing.model_server.script import Fault, Script, Tokens, say


class Api(Protocol):
    """One vendor's protocol: how its requests are read and its answers are rendered."""

    overflow: str

    def serves(self, path: str) -> bool: ...

    def asked(self, body: Mapping[str, Any]) -> Asked: ...

    def stream(self, reply: Reply) -> Iterator[bytes]: ...

    def whole(self, reply: Reply) -> bytes: ...

    def error(self, status: int, text: str) -> bytes: ...

    def error_event(self) -> bytes: ...


APIS: tuple[Api, ...] = (Anthropic(),)


class Dropped(Exception):
    """The connection is to be cut now."""


class ModelServer:
    """A scripted model behind real sockets. Start it with `with`; `url` is where agents reach it."""

    def __init__(self, scripts: Sequence[Script], *, port: int = 0) -> None:
        self._conversations = Conversations(scripts)
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._released = threading.Event()
        self._http = _Http(self, port)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """What lets an agent talk to this server and to nobody else."""
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": "sk-ant-scripted"}

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests so far, in the order in which they came."""
        with self._changed:
            return tuple(self._requests)

    def of(self, script: str) -> tuple[Request, ...]:
        """The requests for turns of one script."""
        return tuple(request for request in self.requests if request.script == script and request.turn >= 0)

    def wait(self, reached: Callable[[ModelServer], bool], seconds: float = 60) -> None:
        """Wait until something is true that requests make true; TimeoutError when it does not become so."""
        until = time.monotonic() + seconds
        while not reached(self):
            with self._changed:
                self._changed.wait(0.05)
            if time.monotonic() > until:
                raise TimeoutError(f"not within {seconds} s; requests so far: {self.requests}")

    def release(self) -> None:
        """End all stalls, those to come too."""
        self._released.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def turn(self, asked: Asked) -> tuple[Reply, Fault | None, Callable[[], None]]:
        """What to answer a request, the fault that hits it, and what to call when it was delivered to its end."""
        with self._changed:
            conversation = self._conversations.of(asked)
            if asked.side:
                reply = Reply(
                    id="msg_side", ops=(say(asked.side),), calls=("",), usage=Tokens(), model=asked.model, cwd=""
                )
                self._note(conversation, asked, -1, 1, None)
                return reply, None, lambda: None
            place = conversation.next(asked)
            reply, fault, attempt = conversation.reply(place, asked)
            self._note(conversation, asked, place, attempt, fault)
        return reply, fault, lambda: conversation.delivered(place)

    def _note(self, conversation: Conversation, asked: Asked, turn: int, attempt: int, fault: Fault | None) -> None:
        self._requests.append(
            Request(
                script=conversation.script.name,
                conversation=asked.conversation,
                turn=turn,
                attempt=attempt,
                fault=fault.kind if fault else "",
                said=asked.said,
                tools=asked.tools,
            )
        )
        self._changed.notify_all()

    def stall(self, seconds: float) -> None:
        self._released.wait(seconds)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, model: ModelServer, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Connection)
        self.model = model

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An agent that hangs up is nothing to speak of."""


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def log_message(self, *_: object) -> None:
        """Silence: the requests are kept, not printed."""

    def do_HEAD(self) -> None:
        self._send(200, b"")

    def do_GET(self) -> None:
        requests = [asdict(request) for request in self.server.model.requests]
        self._send(200, json.dumps(requests).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        api = next((api for api in APIS if api.serves(path)), None)
        if api is None:
            self._send(404, json.dumps({"error": {"message": f"nothing is served at {path}"}}).encode())
            return
        try:
            self._answer(api, api.asked(json.loads(body)))
        except (Dropped, ConnectionError):
            self.close_connection = True

    def _answer(self, api: Api, asked: Asked) -> None:
        reply, fault, delivered = self.server.model.turn(asked)
        if fault and self._instead(api, fault):
            return
        answer = self._stream if asked.stream else self._whole
        answer(api, reply, fault, delivered)

    def _instead(self, api: Api, fault: Fault) -> bool:
        """A fault that comes in place of the turn."""
        if fault.kind == "http":
            more = {"retry-after": f"{fault.retry_after:g}"} if fault.retry_after is not None else {}
            self._send(fault.status, api.error(fault.status, f"scripted status {fault.status}"), more)
        elif fault.kind == "overflow":
            self._send(400, api.error(400, api.overflow))
        elif fault.kind == "garbage":
            self._send(200, b"<html>not what you asked for</html>", {"content-type": "text/html"})
        else:
            self._strike(fault, "before")
            return False
        return True

    def _whole(self, api: Api, reply: Reply, fault: Fault | None, delivered: Callable[[], None]) -> None:
        """An agent that gives up on streams is hit by the same fault."""
        for where in ("start", "middle"):
            self._strike(fault, where)
        if fault and fault.kind == "event":
            self._send(529, api.error(529, "Overloaded"))
            return
        delivered()
        self._send(200, api.whole(reply))

    def _stream(self, api: Api, reply: Reply, fault: Fault | None, delivered: Callable[[], None]) -> None:
        """Send the turn. It counts as delivered just before its end is sent: the next request may come at once."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self._strike(fault, "start")
        *events, last = api.stream(reply)
        half = len(events) // 2
        for event in events[:half]:
            self._chunk(event)
        self._strike(fault, "middle")
        if fault and fault.kind == "event":
            self._chunk(api.error_event())
        else:
            for event in events[half:]:
                self._chunk(event)
            delivered()
            self._chunk(last)
        self._chunk(b"")

    def _strike(self, fault: Fault | None, where: str) -> None:
        if fault is None or fault.where != where:
            return
        if fault.kind == "stall":
            self.server.model.stall(fault.seconds)
        elif fault.kind == "disconnect":
            raise Dropped

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _send(self, status: int, body: bytes, more: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(more or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
