"""The request path: *understand* (an OpenAI body becomes one validated request), *generate* (one engine per
served model yields typed events), *answer* (events become OpenAI objects and server-sent events).

understand  chat, completion, responses, transcription (with ../schemas), request
generate    template, images, audio, sampling, detokenizer, stop_text, assistant_text, stream, engine, serving
answer      answer_chat, answer_completion, answer_responses, answer_transcription, sse
"""

from hf_transformers_backend.optional_packages import hide_unusable

hide_unusable()  # everything below this package imports transformers
