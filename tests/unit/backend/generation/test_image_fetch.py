"""Images behind http(s) addresses: names are resolved by the test, and connections end on 127.0.0.1."""

import asyncio
import datetime
import ssl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpcore2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation import image_fetch
from hf_transformers_backend.generation.image_fetch import ImageFetcher
from hf_transformers_backend.settings import ImageHosts

from tests.support.picture_server import PictureServer, picture, picture_server

PUBLIC, WHERE = "93.184.216.34", "messages[0].content[1].image_url"


class Names:
    """A resolver that knows what the test says, and what was asked of it."""

    def __init__(self, **known: Sequence[str]) -> None:
        self._known = {name.replace("_", "."): list(addresses) for name, addresses in known.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        addresses = self._known.get(host)
        if not addresses:
            raise OSError("no such host")
        return addresses


class Loopback(httpcore2.AsyncNetworkBackend):
    """Notes where a connection is wanted, and makes it to a server of the test."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._network = httpcore2.AnyIOBackend()
        self.dialed: list[str] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        self.dialed.append(host)
        return await self._network.connect_tcp("127.0.0.1", self._port, timeout)


@pytest.fixture(scope="module")
def running() -> Iterator[PictureServer]:
    with picture_server() as server:
        yield server


@pytest.fixture
def server(running: PictureServer) -> PictureServer:
    running.seen.clear()
    running.gone.clear()
    running.hanging.clear()
    return running


def fetcher(
    server: PictureServer, names: Names, *, hosts: ImageHosts = "public", limit: int = 100_000, **options: Any
) -> tuple[ImageFetcher, Loopback]:
    network = Loopback(server.port)
    return ImageFetcher(hosts, limit, resolve=names, network=network, **options), network


async def refusal(images: ImageFetcher, *urls: str) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        await images.fetch([(WHERE, url) for url in urls])
    assert caught.value.param == WHERE
    assert PUBLIC not in caught.value.message
    return caught.value


@pytest.mark.parametrize("path", ["red.png", "blue.jpg", "untyped"])
async def test_an_image_on_the_internet_is_fetched(server: PictureServer, path: str) -> None:
    images, network = fetcher(server, Names(pictures_example=[PUBLIC]))
    url = f"HTTP://pictures.example/{path}"
    got = await images.fetch([(WHERE, url), (WHERE, "data:image/png;base64,AAAA")])
    assert got == {url: server.pages[f"/{path}"][2]}
    assert network.dialed == [PUBLIC]
    assert server.seen == [(f"/{path}", "pictures.example")]


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(server: PictureServer) -> None:
    """A name that answers differently the second time gains nothing: it is asked once per connection."""

    class Turning(Names):
        async def __call__(self, host: str, port: int) -> Sequence[str]:
            self.asked.append(host)
            return [PUBLIC] if len(self.asked) == 1 else ["127.0.0.1"]

    images, network = fetcher(server, names := Turning())
    await images.fetch([(WHERE, "http://turning.example/red.png")])
    assert (names.asked, network.dialed) == (["turning.example"], [PUBLIC])
    error = await refusal(images, "http://turning.example/red.png")
    assert "--image-hosts" in error.message and network.dialed == [PUBLIC]


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["10.1.2.3"],
        ["169.254.169.254"],
        ["fe80::1%eth0"],
        ["fd00::1"],
        ["224.0.0.1"],
        ["0.0.0.0"],
        [PUBLIC, "10.1.2.3"],
    ],
)
async def test_no_connection_is_made_to_a_host_with_an_address_that_is_not_public(
    server: PictureServer, addresses: list[str]
) -> None:
    images, network = fetcher(server, Names(inner_example=addresses))
    error = await refusal(images, "http://inner.example/red.png")
    assert "public internet" in error.message
    assert (network.dialed, server.seen) == ([], [])


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:7f00:1]", "localhost"]
)
async def test_this_machine_is_refused_however_it_is_written(server: PictureServer, host: str) -> None:
    network = Loopback(server.port)
    with closing(ImageFetcher("public", 1000, network=network)) as images:
        await refusal(images, f"http://{host}:{server.port}/red.png")
    assert (network.dialed, server.seen) == ([], [])


async def test_private_hosts_are_fetched_from_when_the_server_says_so(server: PictureServer) -> None:
    url = f"http://127.0.0.1:{server.port}/red.png"
    with closing(ImageFetcher("any", 100_000)) as images:
        assert await images.fetch([(WHERE, url)]) == {url: picture()}


async def test_nothing_is_fetched_when_the_server_says_so(server: PictureServer) -> None:
    images, network = fetcher(server, Names(pictures_example=[PUBLIC]), hosts="off")
    error = await refusal(images, "http://pictures.example/red.png")
    assert "--image-hosts off" in error.message and network.dialed == []
    assert await images.fetch([(WHERE, "data:image/png;base64,AAAA")]) == {}


async def test_redirects_are_followed_and_each_host_is_checked(server: PictureServer) -> None:
    names = Names(a_example=[PUBLIC], b_example=["1.1.1.1"], inner_example=["192.168.0.1"])
    images, network = fetcher(server, names)
    server.redirect("/1", "/2")
    server.redirect("/2", "http://b.example/red.png")
    got = await images.fetch([(WHERE, "http://a.example/1")])
    assert list(got.values()) == [picture()]
    assert network.dialed[-1] == "1.1.1.1"
    for inner in ("http://inner.example/red.png", "//inner.example/red.png", "http://127.0.0.1/red.png"):
        names._known["127.0.0.1"] = ["127.0.0.1"]
        server.redirect("/in", inner)
        server.seen.clear()
        assert "public internet" in (await refusal(images, "http://a.example/in")).message
        assert [path for path, _ in server.seen] == ["/in"]


@pytest.mark.parametrize(
    "target", ["file:///etc/hostname", "ftp://a.example/x", "data:image/png;base64,AAAA"]
)
async def test_a_redirect_leads_to_http_only(server: PictureServer, target: str) -> None:
    images, _ = fetcher(server, Names(a_example=[PUBLIC]))
    server.redirect("/out", target)
    assert "http" in (await refusal(images, "http://a.example/out")).message


async def test_redirects_are_counted(server: PictureServer) -> None:
    images, _ = fetcher(server, Names(a_example=[PUBLIC]))
    server.redirect("/loop", "/loop")
    assert "more than 3 redirects" in (await refusal(images, "http://a.example/loop")).message
    assert len(server.seen) == 4


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("missing.png", "status 404"),
        ("page", "text/html"),
        ("endless", "larger than 100000 bytes"),
        ("hang", "within 0.5 s"),
    ],
)
async def test_what_is_no_image_too_much_or_too_late_is_refused(
    server: PictureServer, monkeypatch: pytest.MonkeyPatch, path: str, words: str
) -> None:
    if path == "hang":
        monkeypatch.setattr(image_fetch, "FETCH_SECONDS", 0.5)
    images, _ = fetcher(server, Names(a_example=[PUBLIC]))
    assert words in (await refusal(images, f"http://a.example/{path}")).message


async def test_a_declared_length_beyond_the_limit_is_not_read(server: PictureServer) -> None:
    images, _ = fetcher(server, Names(a_example=[PUBLIC]), limit=50)
    assert "larger than 50 bytes" in (await refusal(images, "http://a.example/red.png")).message


async def test_the_limit_holds_for_all_images_together(server: PictureServer) -> None:
    size = len(picture())
    names = Names(a_example=[PUBLIC])
    urls = [f"http://a.example/red.png?{i}" for i in range(3)]
    for url in urls:
        server.pages[url.removeprefix("http://a.example")] = server.pages["/red.png"]
    images, _ = fetcher(server, names, limit=3 * size)
    assert len(await images.fetch([(WHERE, url) for url in urls])) == 3
    images, _ = fetcher(server, names, limit=3 * size - 1)
    assert "together" in (await refusal(images, *urls)).message


async def test_one_address_is_fetched_once_and_many_are_refused(server: PictureServer) -> None:
    images, network = fetcher(server, Names(a_example=[PUBLIC]))
    await images.fetch([(WHERE, "http://a.example/red.png")] * 40)
    assert len(network.dialed) == 1
    many = [f"http://a.example/{i}" for i in range(40)]
    assert "at most 32" in (await refusal(images, *many)).message


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://", "http and https"),
        ("http://a.example:99999/x.png", "valid URL"),
        ("http://[::1/x.png", "valid URL"),
        ("http://a.example/\x00", "valid URL"),
        ("http://user:secret@a.example/x.png", "credentials"),
        ("http://unknown.example/x.png", "could not be reached"),
        (f"http://{'a' * 300}.example/x.png", "valid URL|could not be reached"),
    ],
)
async def test_addresses_that_lead_nowhere_are_refused(server: PictureServer, url: str, words: str) -> None:
    images, _ = fetcher(server, Names(a_example=[PUBLIC]))
    error = await refusal(images, url)
    assert any(word in error.message for word in words.split("|"))
    assert "secret" not in error.message


async def test_the_loop_goes_on_and_who_gives_up_ends_the_connection(server: PictureServer) -> None:
    images, _ = fetcher(server, Names(a_example=[PUBLIC]))
    task = asyncio.create_task(images.fetch([(WHERE, "http://a.example/hang")]))
    assert await asyncio.to_thread(server.hanging.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(server.gone.wait, 20)


async def test_proxies_of_the_environment_are_not_used(
    server: PictureServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    images, network = fetcher(server, Names(a_example=[PUBLIC]))
    await images.fetch([(WHERE, "http://a.example/red.png")])
    assert network.dialed == [PUBLIC]


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS for a server called `name`, and for a client that trusts its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    pem, private = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    file.write_bytes(key.private_bytes(pem, private, serialization.NoEncryption()) + cert.public_bytes(pem))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cadata=cert.public_bytes(pem).decode())


async def test_tls_verifies_the_name_and_not_the_address(tmp_path: Path) -> None:
    tls, trusting = certificate(tmp_path, "a.example")
    names = Names(a_example=[PUBLIC], b_example=[PUBLIC])
    with picture_server(tls) as server:
        images, network = fetcher(server, names, tls=trusting)
        assert await images.fetch([(WHERE, "https://a.example/red.png")])
        assert network.dialed == [PUBLIC]
        assert "could not be reached" in (await refusal(images, "https://b.example/red.png")).message
        suspicious, _ = fetcher(server, names)
        assert "could not be reached" in (await refusal(suspicious, "https://a.example/red.png")).message
    assert [path for path, _ in server.seen] == ["/red.png"]
