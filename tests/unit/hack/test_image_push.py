"""What the images are called in a registry, and what helm is told of it."""

import pytest
from imagemaking.inputs import IMAGES
from imagemaking.push import chart_values, remote_names
from lab.errors import LabError


@pytest.mark.parametrize("registry", ["registry.example.com", "127.0.0.1:5000", "ghcr.io/team/sub-team"])
def test_an_image_keeps_its_repository_below_the_registry(registry: str) -> None:
    names = {image.target: name for image, name in remote_names(IMAGES, registry, "0.1.0").items()}

    assert names == {
        "operator": f"{registry}/flexserv/operator:0.1.0",
        "backend": f"{registry}/flexserv/backend:0.1.0",
    }


@pytest.mark.parametrize("registry", ["", "https://example.com", "example.com/", "a b", "-x"])
def test_what_is_no_registry_is_refused_with_an_example(registry: str) -> None:
    with pytest.raises(LabError, match=r"write host\[:port\]\[/path\], as in REGISTRY="):
        remote_names(IMAGES, registry, "0.1.0")


@pytest.mark.parametrize("tag", ["", "a b", "-x", "x" * 129])
def test_what_is_no_tag_is_refused(tag: str) -> None:
    with pytest.raises(LabError, match="is no tag"):
        remote_names(IMAGES, "registry.example.com", tag)


def test_helm_is_told_repository_and_tag_of_both() -> None:
    told = chart_values(remote_names(IMAGES, "127.0.0.1:5000/team", "1.2"))

    assert "backend.image.repository=127.0.0.1:5000/team/flexserv/backend,backend.image.tag=1.2" in told
    assert "operator.image.repository=127.0.0.1:5000/team/flexserv/operator,operator.image.tag=1.2" in told
