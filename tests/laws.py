"""Laws that a codec keeps by itself, whatever bytes it is given: what ties its ways of reading and writing together."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, islice
from types import ModuleType
from typing import Any

from batches import WIDE, at_once, decoded, expected_rows, in_batches
from differential import LAYERS, MODES, Outcome, attempt, drain, iterated, joined, lasting, plain, whole
from mutations import Case

from phpmq.errors import ProtocolError
from phpmq.protocol import CATALOGUE
from phpmq.records import COLUMNS, WORDS, Damage

Law = Callable[[ModuleType, Case], None]

#: What can come of bytes, by the names of classes.
OUTCOMES = {*WORDS, "Frame", "Damage", "Scan", "ProtocolError", "IncompleteMessage"}


def chunks_do_not_matter(codec: ModuleType, case: Case, layer: str, **options: Any) -> None:
    at_once = iterated(codec, layer, case.data, **options)
    assert joined(codec, layer, [case.data], **options) == at_once
    assert lasting(joined(codec, layer, case.chunks, **options)) == lasting(at_once)


def a_scan_sees_what_iteration_sees(codec: ModuleType, case: Case) -> None:
    scan = codec.scan(case.data, **case.options)
    error = [plain(scan.error)] if scan.error else []
    items = iterated(codec, "messages", case.data, **case.options)
    assert (len(items) - len(error), items[scan.frames :]) == (scan.frames, error)
    frames = islice(codec.iter_frames(case.data, **case.options), scan.frames)
    assert scan.end == sum(frame.size for frame in frames)


def a_scanner_counts_what_a_decoder_gives(codec: ModuleType, case: Case, **options: Any) -> None:
    """The same damages at the same moment, and the messages between them by class, with their bytes."""
    decoder, scanner = codec.Decoder(**options), codec._Scanner(**options)
    counts: dict[type, tuple[int, int]] = {}

    def drain_both() -> None:
        given: Outcome = []
        end = decoder.offset
        try:
            for item in decoder:
                if isinstance(item, Damage):
                    given.append(plain(item))
                else:
                    frames, size = counts.get(type(item), (0, 0))
                    counts[type(item)] = frames + 1, size + decoder.offset - end
                end = decoder.offset
        except ProtocolError as error:
            given.append(plain(error))
        assert drain(scanner) == given
        assert scanner.counts == counts
        assert (scanner.offset, scanner.buffered) == (decoder.offset, decoder.buffered)

    for chunk in case.chunks:
        assert attempt(scanner.feed, chunk) == attempt(decoder.feed, chunk)
        drain_both()
    decoder.close()
    scanner.close()
    drain_both()
    assert attempt(next, scanner, None) == attempt(next, decoder, None)
    scanner.reset()
    assert (list(scanner), scanner.counts) == ([], {})


def frames_and_damages_tile_the_input(codec: ModuleType, case: Case) -> None:
    end, size = 0, case.options["packet_header_size"]
    for item in codec.iter_frames(case.data, on_fault="skip", **case.options):
        if isinstance(item, Damage):
            start, stop, wire = item.start, item.stop, item.data
            assert item.offset >= start
        else:
            start, stop = item.offset, item.offset + item.size
            wire = codec.encode_frame(item.type, item.packets, packet_header_size=size)
        assert (start, wire) == (end, case.data[start:stop])
        end = stop
    assert end == len(case.data)


def messages_and_damages_tile_the_input(codec: ModuleType, case: Case) -> None:
    decoder, end = codec.Decoder(on_fault="skip", **case.options), 0
    size = case.options["packet_header_size"]
    decoder.feed(case.data)
    decoder.close()
    for item in decoder:
        wire = case.data[end : decoder.offset]
        if isinstance(item, Damage):
            assert (item.start, item.stop, item.data) == (end, decoder.offset, wire)
        else:
            assert codec.decode(wire, **case.options) == item
            assert (codec.encode(item, packet_header_size=size) == wire) == is_canonical(codec, wire, case)
        end = decoder.offset
    assert (end, decoder.buffered) == (len(case.data), 0)


def is_canonical(codec: ModuleType, wire: bytes, case: Case) -> bool:
    """Whether the packets of a message are in the order of the catalogue."""
    (frame,) = codec.iter_frames(wire, **case.options)
    types = tuple(packet.type for packet in frame.packets)
    return types == CATALOGUE[frame.type, len(types)].packets


def rows_are_messages_and_damages(codec: ModuleType, case: Case) -> None:
    rows, names = expected_rows(codec, case.data, **case.options), list(COLUMNS)
    outcome = at_once(codec, case.data, names, on_fault="skip", **case.options, **WIDE)
    assert [batch for batch, _ in outcome[:-1]] == list(in_batches(rows, names, **WIDE))
    fed = decoded(codec, case.chunks, names, on_fault="skip", **case.options, **WIDE)
    assert [entry for entry in fed if isinstance(entry, tuple)] == outcome[:-1]


def bytes_parse_or_are_refused(codec: ModuleType, case: Case) -> None:
    """There is no exception but those for what the bytes say."""
    _, decoded, scanned, *iterated = whole(codec, case.data, **case.options)
    assert {entry[0] for entry in chain([decoded, scanned], *iterated)} <= OUTCOMES


def _with(law: Callable[..., None], *args: str, mode: str) -> Law:
    return lambda codec, case: law(codec, case, *args, on_fault=mode, **case.options)


LAWS: tuple[Law, ...] = (
    bytes_parse_or_are_refused,
    *(_with(chunks_do_not_matter, layer, mode=mode) for layer in LAYERS for mode in MODES),
    *(_with(a_scanner_counts_what_a_decoder_gives, mode=mode) for mode in MODES),
    a_scan_sees_what_iteration_sees,
    rows_are_messages_and_damages,
    frames_and_damages_tile_the_input,
    messages_and_damages_tile_the_input,
)
