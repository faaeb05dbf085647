"""A byte-level BPE tokenizer of about 500 tokens, trained on the spot; every text can be encoded with it."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
THINK_START, THINK_END = "<think>", "</think>"
_TEXT = (
    "hello world, this is a small tokenizer for tests",
    "the quick brown fox jumps over the lazy dog",
    "what is the capital of France? the system answers the user and calls a tool",
    "user assistant system developer tool think",
)

# In the manner of today's reasoning models: `enable_thinking` true opens the thinking part for the model,
# false closes it at once, and left out it is the model's choice. `persona` stands for any further argument.
CHAT_TEMPLATE = """\
{%- if persona is defined %}<|im_start|>system
You are {{ persona }}.<|im_end|>
{% endif %}
{%- if tools %}<|im_start|>system
Tools: {{ tools | tojson }}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}
{%- elif message['content'] %}{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>
{%- else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}
{%- if message['tool_calls'] %}{{ message['tool_calls'] | tojson }}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined %}{% if enable_thinking %}<think>
{% else %}<think>

</think>

{% endif %}{% endif %}{% endif %}"""


def make_tokenizer(*extra_tokens: str, chat_template: str | None = CHAT_TEMPLATE) -> PreTrainedTokenizerFast:
    """Train the tokenizer; `extra_tokens` become special tokens of their own."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=[END_OF_TEXT, TURN_START, TURN_END, THINK_START, THINK_END, *extra_tokens],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_TEXT * 50, trainer)
    # The thinking marks stay visible in decoded text, as they do with real reasoning models.
    for mark in (THINK_START, THINK_END):
        bpe.add_tokens([mark])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=END_OF_TEXT,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = chat_template
    return tokenizer
