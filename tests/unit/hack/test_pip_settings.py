"""What pip says about itself becomes arguments of a build."""

from pathlib import Path

import pytest
from imagemaking.pip_settings import build_arguments, parse, place_certificates

LISTING = """\
:env:.index-url='https://index.example/simple'
:env:.find-links='/somewhere'
global.index-url='https://old.example/simple'
global.cert='/etc/certificates.pem'
global.trusted-host='\\na.example\\nb.example'
"""


def test_the_environment_wins_over_files() -> None:
    assert parse(LISTING)["index-url"] == "https://index.example/simple"


def test_an_empty_listing_gives_no_arguments() -> None:
    assert build_arguments(parse(""), {}) == {}


def test_only_what_concerns_the_index_is_passed_on() -> None:
    assert build_arguments(parse(LISTING), {"https_proxy": "http://proxy.example:3128", "HOME": "/root"}) == {
        "PIP_INDEX_URL": "https://index.example/simple",
        "PIP_TRUSTED_HOST": "a.example b.example",
        "PIP_CERT": "/build/ca.crt",
        "https_proxy": "http://proxy.example:3128",
    }


@pytest.mark.parametrize("before", [True, False])
def test_the_certificates_of_an_earlier_build_do_not_stay(tmp_path: Path, before: bool) -> None:
    folder, bundle = tmp_path / "certificates", tmp_path / "bundle.pem"
    bundle.write_text("certificate")
    if before:
        place_certificates({"cert": str(bundle)}, folder)
        assert (folder / "ca.crt").read_text() == "certificate"
    place_certificates({}, folder)
    assert not folder.exists()
