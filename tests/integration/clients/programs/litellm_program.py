"""A LiteLLM program that is given the API's address and a question. Prints what it got, as JSON."""

import json
import sys

import litellm

api, question = sys.argv[1:]
litellm.telemetry = False
common = {"api_base": api, "api_key": "unused"}
chat = {
    "model": "openai/smollm2",
    "messages": [{"role": "user", "content": question}],
    "temperature": 0,
    "max_tokens": 16,
    **common,
}
whole = litellm.completion(**chat)
chunks = list(litellm.completion(stream=True, **chat))
text = litellm.text_completion(
    model="text-completion-openai/smollm2", prompt="The capital of France is", max_tokens=4, **common
)
embedding = litellm.embedding(model="openai/minilm", input=["a cat", "a dog"], **common)
try:
    litellm.completion(**{**chat, "model": "openai/org/absent"})
    refused = None
except litellm.exceptions.NotFoundError as error:
    refused = error.status_code
print(
    json.dumps(
        {
            "chat": whole.choices[0].message.content,
            "tokens": whole.usage.completion_tokens,
            "streamed": "".join(chunk.choices[0].delta.content or "" for chunk in chunks),
            "completion": text.choices[0].text,
            "vectors": [item["embedding"] for item in embedding.data],
            "refused": refused,
        }
    )
)
