"""How amounts of memory are told: bytes inside, GiB and percent at the border."""

GIB = 1024**3


def gibibytes(count: int) -> float:
    """`count` bytes in GiB, rounded to 0.1."""
    return round(count / GIB, 1)


def percentage(used: int, total: int) -> float:
    """`used` of `total` in percent, rounded to 0.1; 0.0 of nothing."""
    return round(100.0 * used / total, 1) if total > 0 else 0.0
