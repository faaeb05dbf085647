"""What the libraries themselves answer in this process: what the server's greedy answers are held to."""

from functools import cache
from pathlib import Path
from typing import Any


@cache
def _chat_model(folder: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32
    )


def greedy_chat(folder: Path, question: str, max_new_tokens: int) -> str:
    """The greedy answer of the model in `folder` to one user message, by `model.generate`."""
    tokenizer, model = _chat_model(folder)
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    output = model.generate(**inputs, do_sample=False, max_new_tokens=max_new_tokens)
    text: str = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return text
