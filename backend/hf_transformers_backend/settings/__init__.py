"""Every setting of the backend, declared once: name, type, default, limits and help.

One module per noun declares them (server, access, models, generation, batching, memory). The command line
(`--kebab-case`), the environment (`FLEXSERV_UPPER_SNAKE`) and the reference table come from the fields.
The command line wins over the environment. Imports nothing heavy: `--help` must be instant.
"""

from hf_transformers_backend.settings.command_line import (
    PROGRAM,
    load_settings,
    parse_settings,
    settings_or_exit,
)
from hf_transformers_backend.settings.declared import ENV_PREFIX, Settings, env_of, flag_of
from hf_transformers_backend.settings.kinds import (
    LONGEST_SECONDS,
    DTypeName,
    ImageHosts,
    Quantization,
    SettingsError,
)

__all__ = [
    "ENV_PREFIX",
    "LONGEST_SECONDS",
    "PROGRAM",
    "DTypeName",
    "ImageHosts",
    "Quantization",
    "Settings",
    "SettingsError",
    "env_of",
    "flag_of",
    "load_settings",
    "parse_settings",
    "settings_or_exit",
]
