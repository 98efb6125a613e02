"""The HTTP client for a team's server. It sends the user's token only to that server, and checks the answers.

If a server does not answer, the client stores that for a while, so that other commands do not wait for it.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx2
from pydantic import ValidationError

from indexer import state_db
from smart_fork import errors
from smart_fork.display_text import quoted
from smart_fork.errors import ServerUnavailable, SmartForkError
from smart_fork.sharing import canonical
from smart_fork.team import wire
from smart_fork.team.stored_logins import Account, is_loopback, rejected_token, remember, renewal_after


class Deadline:
    """A timer for HTTP requests: it closes the connection if the whole answer has not arrived in time.

    Each thread that sends requests needs its own object. httpx2 calls `trace` for each step of a request.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._socket: socket.socket | None = None
        self._timer: threading.Timer | None = None
        self._passed = False

    def trace(self, event: str, facts: Mapping[str, Any]) -> None:
        """Store the connection's socket, and start the timer when a request is sent. httpx2 calls this at each step."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._socket = facts["return_value"].get_extra_info("socket")
        elif event.endswith(".send_request_body.complete"):
            self._timer = threading.Timer(self._seconds, self._end)
            self._timer.daemon = True
            self._timer.start()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Raise `ServerUnavailable` if the answer to a request that is sent in this context takes too long."""
        self._passed = False
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            if self._passed:
                raise ServerUnavailable("The server is too slow.", "Try again.")

    def _end(self) -> None:
        self._passed = True
        if self._socket is not None:
            with suppress(OSError):  # whoever reads it finds its end
                self._socket.shutdown(socket.SHUT_RDWR)


M = TypeVar("M", bound=canonical.WireModel)
S = TypeVar("S", wire.SessionInfo, wire.SessionRead, wire.Rewritten)
#: The names and values of an address's query string.
QueryString = Mapping[str, str] | None
#: The most bytes of an answer from the server.
MESSAGE_BYTES = 64 << 20
#: The most bytes of an answer without content.
NO_CONTENT_BYTES = 0
#: Seconds to wait before the first and the second retry of a failed request.
RETRY_PAUSES = (0.1, 0.2)
#: Seconds from the end of a request to the last byte of its answer.
ANSWER_SECONDS = 120.0
_TIMEOUTS = httpx2.Timeout(30.0, connect=5.0)
_ERROR_CLASSES: Mapping[int, type[errors.SmartForkError]] = {
    400: errors.Usage,
    403: errors.WrongVerb,
    413: errors.TooLarge,
    422: errors.Unshareable,
}
#: The hints for errors, by HTTP status, if the server or a proxy in front of it gives none.
_HINTS: Mapping[int, str] = {
    401: "Ask for an invitation if you have no valid one.",
    408: "Try again.",
    409: "smart-fork team status shows the state of this machine and the server.",
    413: "smart-fork team push --dry-run shows what would be sent.",
    422: "Nothing was changed there: smart-fork team push --dry-run shows what would be sent.",
    426: "",
    429: "Wait a minute, and try again.",
    507: "Its operator must free space. Nothing is lost. Try again then.",
}
_SAME_VERSION = "Install the same version of smart-fork as the server."


@dataclass
class Client:
    """An HTTP client of one team server, for one user account. Close it, or use it as a context manager."""

    account: Account
    times: httpx2.Timeout = field(default_factory=lambda: _TIMEOUTS)
    pauses: tuple[float, ...] = RETRY_PAUSES
    wait: Callable[[float], object] = time.sleep

    def __post_init__(self) -> None:
        host = urlsplit(self.account.origin).hostname or ""
        self._http = httpx2.Client(
            base_url=self.account.origin,
            timeout=self.times,
            follow_redirects=False,  # a token goes nowhere else
            trust_env=not is_loopback(host),  # no proxy reads what stays on this machine
            verify=_trusted(self.account.origin, host),
            headers={wire.PROTOCOL_HEADER: str(wire.PROTOCOL), "Accept-Encoding": "identity"},
        )
        self._deadline = Deadline(ANSWER_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def hello(self) -> wire.Hello:
        """Ask the server for its protocol version and its own version."""
        return self.ask(wire.Hello, "GET", "hello")

    def login(self, invite: str, machine: str, token: str | None = None) -> wire.LoggedIn:
        """Exchange an invitation for a token. With a `token` of the client's choice, the request can be repeated."""
        try:
            wanted = wire.LoginRequest(invite=invite, machine=machine[:200], token=token)
        except ValidationError:
            raise errors.Usage(
                "That is not an invitation.", "It begins with sfi_. An admin makes one with: smart-fork team user add"
            ) from None
        said = self.ask(wire.LoggedIn, "POST", "login", wanted)
        if token is not None and said.token != token:
            raise _not_a_team_server("It gives a wrong kind of token.")
        return said

    def renew(self) -> None:
        """Ask the server to replace this machine's token by a new one, and store the new token."""
        said = self.ask(wire.LoggedIn, "POST", "token")
        self.account = Account(self.account.origin, said.user, said.token, renewal_after(said.expires_at))
        remember(self.account)

    def logout(self) -> None:
        """Log out: the server revokes this machine's token."""
        self.send("POST", "logout", most=NO_CONTENT_BYTES)

    def session(self, project: str, session_id: str, verb: str = "show") -> wire.SessionRead:
        """Return a session and the positions of its segments (blocks of records).

        `verb` ("show", "pull" or "fork") tells the server what the client will do with the session.
        """
        return self._of(project, session_id, wire.SessionRead, "GET", verb=verb)

    def change(self, project: str, session_id: str, wanted: wire.SessionChange) -> wire.SessionInfo:
        """Change the description or visibility of a session, and return the session."""
        return self._of(project, session_id, wire.SessionInfo, "PATCH", wanted=wanted)

    def changes(self, since: str | None) -> wire.WithdrawnPage:
        """Return the withdrawals (records removed by their owners) after the bookmark `since` that concern the user."""
        return self.ask(wire.WithdrawnPage, "GET", "changes", asked={"since": since} if since is not None else None)

    def rewrite(self, project: str, session_id: str, wanted: wire.Rewrite) -> wire.Rewritten:
        """Withdraw (remove or replace) records of a session, also in all sessions that were made from it."""
        return self._of(project, session_id, wire.Rewritten, "POST", "/rewrites", wanted)

    def _of(  # noqa: PLR0917 - a question
        self, project: str, session_id: str, answer: type[S], method: str, path: str = "",
        wanted: canonical.WireModel | None = None, **asked: str,
    ) -> S:  # fmt: skip
        """Send a request about a session with query parameters `asked`. Check that the answer is about the session."""
        found = self.ask(answer, method, f"sessions/{session_id}{path}", wanted, {"project": project} | asked)
        _check(found, project, session_id)
        return found

    def delete(self, project: str, session_id: str) -> None:
        """Hide a session on the server. Its forks stay."""
        self.send("DELETE", f"sessions/{session_id}", asked={"project": project}, most=NO_CONTENT_BYTES)

    def delete_everywhere(self, project: str, session_id: str) -> wire.Rewritten:
        """Withdraw all records of a session except its parent's, also from sessions made from it."""
        return self._of(project, session_id, wire.Rewritten, "DELETE", everywhere="1")

    def audit(self, **asked: str) -> wire.Audit:
        """Return a page of the server's audit log (who did what), filtered by the query parameters `asked`."""
        return self.ask(wire.Audit, "GET", "audit", asked=asked)

    def administer(self, wanted: wire.Administer) -> dict[str, Any]:
        """Send an admin's request about users or background jobs."""
        return self.ask(wire.Administered, "POST", "admin", wanted).told

    def page(self, project: str, **asked: str) -> wire.SessionListPage:
        """Return a page of a project's sessions, newest first, filtered by the query parameters `asked`."""
        found = self.ask(wire.SessionListPage, "GET", f"projects/{_path(project)}/sessions", asked=asked)
        for one in found.sessions:
            _check(one, project, one.id)
        return found

    def have(self, project: str, digests: tuple[str, ...]) -> frozenset[str]:
        """Return the `digests` of segments (blocks of records) that the server has, so that they need not be sent."""
        answer = self.ask(wire.HaveAnswer, "POST", f"projects/{_path(project)}/have", wire.Have(segments=digests))
        return frozenset(answer.present)

    def put_segment(self, project: str, digest: str, body: bytes) -> None:
        """Send the bytes of a segment (a compressed block of records). `digest` is the hash of its records."""
        self.send("PUT", f"projects/{_path(project)}/segments/{digest}", body, most=NO_CONTENT_BYTES)

    def segment(self, project: str, digest: str) -> bytes:
        """Download a segment (a compressed block of records) by its digest."""
        return self.send(
            "GET", f"projects/{_path(project)}/segments/{digest}", most=canonical.LIMITS.segment_body_bytes
        )

    def push(self, project: str, wanted: wire.Push) -> wire.Pushed:
        """Append records to a session on the server, or create the session."""
        done = self.ask(wire.Pushed, "POST", f"projects/{_path(project)}/push", wanted)
        _check(done.session, project, wanted.id)
        if (done.session.record_count, done.session.head_digest) != (wanted.count, wanted.digest):
            raise _not_a_team_server("It confirms other records than the sent ones.")
        if done.session.agent != wanted.agent:
            raise _not_a_team_server("It confirms another agent.")
        return done

    def search(self, project: str, wanted: wire.Search) -> wire.SearchAnswer:
        """Search the sessions of a project."""
        found = self.ask(wire.SearchAnswer, "POST", f"projects/{_path(project)}/search", wanted)
        for hit in found.hits:
            _check(hit.session, project, hit.session.id)
        return found

    def branch(self, project: str, wanted: wire.Branch) -> wire.Pushed:
        """Create a session on the server with the first records of another session."""
        done = self.ask(wire.Pushed, "POST", f"projects/{_path(project)}/branches", wanted)
        _check(done.session, project, wanted.id)
        if done.session.parent_id != wanted.source_id or wanted.count not in (None, done.session.base_count):
            raise _not_a_team_server("It made a wrong session.")
        return done

    def ask(
        self,
        answer: type[M],
        method: str,
        path: str,
        body: canonical.WireModel | None = None,
        asked: QueryString = None,
    ) -> M:
        """Send a request with the message `body` to `path` below ``/v1``, and parse the answer as the type `answer`.

        Raise the errors of `send`, and `ServerUnavailable` if the answer is not a valid `answer`.
        """
        sent = None if body is None else body.model_dump_json(exclude_none=True).encode()
        said = self.send(method, path, sent, asked)
        try:
            return answer.model_validate_json(said)
        except ValidationError as error:
            raise _not_a_team_server(f"Its answer has another form ({error.error_count()} fields).") from None

    def send(
        self, method: str, path: str, body: bytes | None = None, asked: QueryString = None, *, most: int = MESSAGE_BYTES
    ) -> bytes:
        """Send a request with the bytes `body`, and return the answer's bytes. Refuse an answer of over `most` bytes.

        If the connection fails, or the server reports an internal error, send the request up to two times more.

        Raises:
            NotAuthenticated, WrongVerb, NotFound, Conflict, Usage, Unshareable: the error that the server names.
            ServerUnavailable: the server does not answer, or is not a team server.
        """
        for pause in self.pauses:
            try:
                return self._once(method, path, body, asked, most)
            except errors.ServerUnavailable as failed:
                if not failed.again:
                    raise
                self.wait(pause)
        return self._once(method, path, body, asked, most)

    def _once(self, method: str, path: str, body: bytes | None, asked: QueryString, most: int) -> bytes:
        token = self.account.token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None:
            headers["Content-Type"] = "application/json" if body[:1] == b"{" else "application/zstd"
        more: dict[str, Any] = {"params": dict(asked)} if asked else {}
        more |= {"extensions": {"trace": self._deadline.trace}}
        try:
            with (
                self._deadline.watch(),
                self._http.stream(method, f"/v1/{path}", content=body, headers=headers, **more) as answer,
            ):
                return self._read(answer, most)
        except UnicodeEncodeError as error:
            wrong = next(one for one in (*(asked or {}).values(), path) if error.object in one)
            named = quoted(wrong.encode("utf-8", "replace").decode())
            raise errors.Usage(f"{named} is not UTF-8, which the team server needs.", "Type it in UTF-8.") from None
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            away = _unreachable(self.account.origin, error)
            away.answered, away.again = False, True
            raise away from error

    def _read(self, answer: httpx2.Response, most: int) -> bytes:
        """Return the body of a successful HTTP answer. For an HTTP error, raise the error that it describes."""
        good = answer.status_code in (200, 201, 204)
        said = _bounded(answer, most if good else 64 << 10)
        if good and most == NO_CONTENT_BYTES and answer.status_code != 204:
            raise _not_a_team_server("It does not confirm the request.")
        if good:
            return said
        if answer.is_redirect:
            raise _not_a_team_server("It redirects to another address, which never gets the token.")
        raise _exception_of(answer.status_code, said, known=bool(self.account.token))


def _trusted(origin: str, host: str) -> ssl.SSLContext | bool:
    """Return the certificates to trust for ``https``: those that environment variables name, or the default ones."""
    if not origin.startswith("https:"):
        # Without a proxy none is ever shown: nobody's is believed, and those of the system are not read in vain.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_loopback(host) else True
    try:
        return httpx2.create_ssl_context()
    except OSError as error:  # what ssl raises is one, too
        hint = "SSL_CERT_FILE names a file of certificates in PEM form, SSL_CERT_DIR a folder of them."
        raise errors.Usage(f"The certificates of SSL_CERT_FILE cannot be read: {error}", hint) from error


def _unreachable(origin: str, error: Exception) -> errors.ServerUnavailable:
    said = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in said:
        hint = "If your team signs its own certificates, set SSL_CERT_FILE to the trusted certificate."
        return errors.ServerUnavailable(f"The certificate of {origin} is not trusted here.", hint)
    if origin.startswith("https:") and "WRONG_VERSION_NUMBER" in said:
        return errors.ServerUnavailable(
            f"{origin} answers without TLS.", "On its own machine it is at http://127.0.0.1:…"
        )
    if isinstance(error, httpx2.ReadError | httpx2.WriteError) or "disconnected" in said or "peer closed" in said:
        hint = "Run the command again: nothing happens twice. If the server has a certificate, use https://…"
        hint = hint if origin.startswith("http:") else hint.partition(" If ")[0]
        return errors.ServerUnavailable(f"{origin} closed the connection before its answer was complete.", hint)
    if origin.startswith("http:") and isinstance(error, httpx2.RemoteProtocolError):
        return errors.ServerUnavailable(f"{origin} does not answer in plain HTTP.", "Over TLS it is at https://…")
    message = f"The server does not answer: {origin} ({type(error).__name__})"
    return errors.ServerUnavailable(message, "Is it running, and is the address right?")


def _bounded(answer: httpx2.Response, most: int) -> bytes:
    """Return the body of an answer. Refuse a compressed body, and one of more than `most` bytes."""
    if answer.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise _not_a_team_server("Its answer is compressed, which was not allowed.")
    parts: list[bytes] = []
    size = 0
    for part in answer.iter_raw():
        size += len(part)
        if size > most:
            raise _not_a_team_server(f"Its answer is longer than {most} bytes.")
        parts.append(part)
    return b"".join(parts)


def _exception_of(status: int, said: bytes, *, known: bool) -> errors.SmartForkError:
    try:
        failure = wire.Failure.model_validate_json(said)
    except ValidationError:
        if status < 500 and status not in _HINTS:
            return _not_a_team_server(f"It answers with status {status}, without a reason.")
        failure = wire.Failure(error="unknown", message=f"The server answered with status {status}.")
    message, hint = failure.message, failure.hint or _HINTS.get(status, "")
    if status >= 500:
        failed = errors.ServerUnavailable(message, hint or "Try again later, or tell its operator.")
        failed.again = True
        return failed
    if status == 401:
        return rejected_token() if known else errors.NotAuthenticated(message, hint)
    if status == 404:
        return errors.NotFound(message, hint)
    if status == 409:
        return errors.Conflict(message, hint, count=failure.count, digest=failure.digest)
    if status == 426:
        return errors.ServerUnavailable(message, _SAME_VERSION)
    if failure.limit is not None:
        hint = hint or f"Used: {failure.used or 0:,} of {failure.limit:,} bytes."
    return _ERROR_CLASSES.get(status, errors.SmartForkError)(message, hint)


def _check(found: wire.SessionInfo | wire.SessionRead | wire.Rewritten, project: str, session_id: str) -> None:
    info = found if isinstance(found, wire.SessionInfo) else found.session
    if (info.id, info.project) != (session_id, project):
        raise _not_a_team_server("It answers with a wrong session.")


def _not_a_team_server(what: str) -> errors.ServerUnavailable:
    return errors.ServerUnavailable(f"This is not a team server, or it has another version. {what}", _SAME_VERSION)


def _path(project: str) -> str:
    return quote(project, safe="/")


#: Seconds that a quick request waits for an answer, and seconds until a silent server is asked again.
QUICK_SECONDS, UNAVAILABLE_SECONDS = 1.5, 30.0
NO_ANSWER = f"The team server did not answer within {QUICK_SECONDS:g} seconds."
ASKED_LATER = f"The team server did not answer. smart-fork asks again after {UNAVAILABLE_SECONDS:g} seconds."

T = TypeVar("T")


def is_unavailable(origin: str) -> bool:
    """Return True if a server did not answer within the last 30 seconds, so that callers can skip it."""
    try:
        return 0 <= time.time() - (state_db.fact(f"away {origin}") or 0) < UNAVAILABLE_SECONDS
    except OSError:
        return False


def note_unavailable(origin: str) -> None:
    """Store that a server does not answer, so that all processes of this machine skip it for 30 seconds."""
    with suppress(OSError):
        state_db.keep(f"away {origin}", time.time())


def impatient_client(account: Account) -> Client:
    """Return a client that tries each request only once, with short timeouts."""
    return Client(account, times=httpx2.Timeout(QUICK_SECONDS), pauses=())


class PendingAnswer:
    """A request to the server that runs in a thread with the name `name`."""

    def __init__(self, work: Callable[[], None], name: str, seconds: float | None = None) -> None:
        self._seconds = QUICK_SECONDS if seconds is None else seconds
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._thread.start()

    def has_ended(self) -> bool:
        """Wait until the request ends. Return False if it still runs after `seconds`."""
        self._thread.join(self._seconds)
        return not self._thread.is_alive()


def ask_briefly(account: Account, work: Callable[[Client], T], name: str) -> T:
    """Call `work` with a client of the server, in a thread with the name `name`, and return the result.

    Raise `ServerUnavailable` if the server does not answer within 1.5 seconds.
    """
    answered: list[T | SmartForkError] = []

    def ask() -> None:
        try:
            with impatient_client(account) as client:
                answered.append(work(client))
        except SmartForkError as error:
            answered.append(error)

    silent = ServerUnavailable(NO_ANSWER, "Is it running, and is the address right?")
    if is_unavailable(account.origin):
        raise silent
    in_time = PendingAnswer(ask, name).has_ended() and answered
    if not in_time or isinstance(answered[0], ServerUnavailable):
        note_unavailable(account.origin)
        raise silent
    if isinstance(answered[0], SmartForkError):
        raise answered[0]
    return answered[0]
