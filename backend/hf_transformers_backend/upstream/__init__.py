"""The only place that imports `transformers.cli.serving`: one file per thing that we take or override.

`transformers serve` is no public API and changes with most releases. `version.py` refuses a release that this
adapter was not written for; every other file says which behavior it replaces, in which versions, and when it
can go.
"""
