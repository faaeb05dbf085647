"""The OpenAI requests that we take: types, ranges and what is refused, in one declaration per field.

A field whose type is a literal is one that we do not implement further: other values would change the
meaning of the answer and are an error. Fields that change nothing in the answer are declared and unused.
null is absent everywhere.
"""
