"""The one error tree of the programs in hack/."""


class LabError(Exception):
    """Something that the person at the keyboard must know or change; shown without a traceback."""


class MissingError(LabError):
    """A thing that this machine lacks (a program, a right, a network); the message names the remedy."""


class RefusedError(LabError):
    """We could go on, but it would disturb something that is not ours."""


class CommandError(LabError):
    """A program that we ran failed or did not end in time; the message holds the end of its output."""


class TookTooLong(CommandError):
    """A program did not end in time."""
