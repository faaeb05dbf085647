"""Make the named models: `python -m modelmaking --dir DIR NAME...`."""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from modelmaking import language, packaged, shelf, speech, vision

MAKERS: dict[str, Callable[[Path], None]] = {
    "SmolLM2-135M-Instruct": packaged.make_smollm2,
    "SmolLM2-135M-Instruct-GGUF": packaged.make_smollm2_gguf,
    "all-MiniLM-L6-v2": packaged.make_minilm,
    "tiny-random-llama": language.make_llama,
    "tiny-random-gpt2": language.make_gpt2,
    "tiny-random-whisper": speech.make_whisper,
    "tiny-random-vision": vision.make_llava,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="modelmaking", description="Make the named models.")
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("names", nargs="+", choices=sorted(MAKERS))
    arguments = parser.parse_args()
    with shelf.locked(arguments.dir):
        for name in arguments.names:
            if shelf.is_current(
                arguments.dir, name
            ):  # another run made it while this one waited for the lock
                continue
            started = time.monotonic()
            shelf.place(arguments.dir, name, MAKERS[name])
            print(f"models: {name}: made in {time.monotonic() - started:.1f} s", flush=True)


main()
