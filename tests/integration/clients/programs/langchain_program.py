"""A LangChain program that is given the API's address and a question. Prints what it got, as JSON."""

import json
import sys

from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

api, question = sys.argv[1:]
common = {"base_url": api, "api_key": "unused", "temperature": 0, "max_tokens": 16}
chat = ChatOpenAI(model="smollm2", **common)
answer = chat.invoke(question)
chunks = list(ChatOpenAI(model="smollm2", stream_usage=True, **common).stream(question))
# Without this setting it counts tokens first, with an encoding that it downloads.
encoder = OpenAIEmbeddings(model="minilm", base_url=api, api_key="unused", check_embedding_ctx_length=False)
print(
    json.dumps(
        {
            "chat": answer.content,
            "finish_reason": answer.response_metadata["finish_reason"],
            "tokens": answer.usage_metadata["output_tokens"],
            "streamed": "".join(chunk.content for chunk in chunks),
            "streamed_tokens": sum((chunk.usage_metadata or {}).get("output_tokens", 0) for chunk in chunks),
            "responses_api": ChatOpenAI(model="smollm2", use_responses_api=True, **common)
            .invoke(question)
            .text,
            "completion": OpenAI(model="smollm2", **common).invoke("The capital of France is"),
            "query": encoder.embed_query("a cat"),
            "documents": encoder.embed_documents(["a cat", "a dog"]),
        }
    )
)
