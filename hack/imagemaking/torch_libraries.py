"""Print how many bytes `pip install torch` takes by itself, byte code aside. An image's own Python runs it.

It adds up the sizes that the packages' records give to their files as pip unpacked them: what was deleted
afterwards counts, too. So it holds for any build of torch and any architecture.
"""

from importlib.metadata import Distribution, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def with_requirements(name: str) -> dict[str, Distribution]:
    """A distribution and all that it requires in this environment, by name."""
    found: dict[str, Distribution] = {}
    waiting, seen = [(name, frozenset[str]())], set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found[name] = distribution(name)
        for line in found[name].requires or ():
            required = Requirement(line)
            wanted = ({"extra": extra} for extra in ("", *extras))
            if required.marker is None or any(map(required.marker.evaluate, wanted)):
                waiting.append((canonicalize_name(required.name), frozenset(required.extras)))
    return found


def recorded_size(one: Distribution) -> int:
    """Bytes of the distribution's files as they came; what was compiled here has no size in the record."""
    return sum(file.size or 0 for file in one.files or ())


if __name__ == "__main__":
    print(sum(map(recorded_size, with_requirements("torch").values())))
