"""Input that Hypothesis draws: valid messages and frames, and damaged streams of them."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import strategies as st
from mutations import CONTENTS, INTEGERS, TEXTS, Case, Told, any_limit, any_stream, cut, damage
from wire import field_names

from phpmq.protocol import CATALOGUE, MAX_INTEGER, PACKET_HEADER_SIZES, Form

sizes = st.sampled_from(PACKET_HEADER_SIZES)
texts = (
    st.sampled_from(TEXTS)
    | st.binary(max_size=12).map(lambda data: data.decode("utf-8", "surrogateescape"))
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
contents = st.sampled_from(CONTENTS) | st.binary(max_size=40)
integers = st.sampled_from(INTEGERS) | st.integers(0, MAX_INTEGER)


def messages_of(
    texts: st.SearchStrategy[str], contents: st.SearchStrategy[bytes], integers: st.SearchStrategy[int]
) -> st.SearchStrategy[Told]:
    """Messages of all forms."""
    values: dict[str, st.SearchStrategy[Any]] = {"queue": texts, "content": contents, "message_id": texts}
    values |= {"count": integers, "ttl": integers}

    def of_form(form: Form) -> st.SearchStrategy[Told]:
        fields = st.fixed_dictionaries({name: values[name] for name in field_names(form)})
        return fields.map(partial(Told, form.message))

    return st.sampled_from(list(CATALOGUE.values())).flatmap(of_form)


messages = messages_of(texts, contents, integers)
#: Frames of any type with any packets, as the arguments of ``parts``.
frames = st.tuples(st.integers(0, 999), st.lists(st.tuples(st.integers(0, 99), contents), max_size=5))


def chunkings(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """The same bytes whole, byte by byte, or cut anywhere, empty chunks included."""
    places = st.lists(st.integers(0, len(data)), min_size=1, max_size=6)
    return (st.just(range(1, len(data))) | places | st.sampled_from([(), (len(data) // 2,)])).map(partial(cut, data))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A damaged stream, cut anyhow, read with its own packet header size or sometimes with another."""
    size, random = draw(sizes), draw(st.randoms(use_true_random=False))
    pieces = any_stream(random, size)
    options = {"max_frame_size": any_limit(random, pieces)}
    options["packet_header_size"] = draw(st.sampled_from([size] * 8 + [*PACKET_HEADER_SIZES]))
    damage(random, pieces)
    return Case(draw(chunkings(b"".join(pieces))), options)


#: Calls on a decoder, by method and arguments, over the chunks of a case: any order is legal.
calls = st.sampled_from(["feed", "feed", "feed", "next", "next", "drain", "feed nothing", "close", "reset"])
