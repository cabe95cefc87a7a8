# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, auto_pickle=False
# cython: freethreading_compatible=True
"""The compiled codec: the names and the behaviour of ``_codec_py``, written separately.

Its idea: a *walk* judges one frame, a *cursor* goes from frame to frame, both in plain C without any
Python object. What stands above them turns the places they found into objects.
"""

import cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Free, PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc, PyMem_Realloc
from cpython.object cimport PyObject, PyTypeObject
from cpython.unicode cimport PyUnicode_Check, PyUnicode_DecodeUTF8, PyUnicode_FromObject
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint16_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

from operator import index as _index
from types import GenericAlias

from phpmq.errors import Fault, IncompleteMessage, ProtocolError, foreign_hint, header_size_hint, number_text
from phpmq.protocol import (
    CATALOGUE,
    DAMAGE_DATA_SIZE,
    DEFAULT_MAX_FRAME_SIZE,
    DEFAULT_PACKET_HEADER_SIZE,
    DETECTION_SIZE,
    FOUND_SIZE,
    MAX_MESSAGE_TYPE,
    MAX_PACKET_COUNT,
    MAX_PACKET_TYPE,
    PACKET_HEADER_SIZES,
)
from phpmq.records import COLUMNS, NOT_UTF8, WORDS, Damage, Frame, Packet, Scan

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #ifndef PHPMQ_VERSION
    #error "PHPMQ_VERSION is not defined: build through setup.py"
    #endif

    /* Eight bytes, the first of them in the lowest place on every machine. */
    static inline uint64_t load_word(const unsigned char *bytes) {
        uint64_t word;
        memcpy(&word, bytes, 8);
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        return word;
    }

    static inline int are_digits(uint64_t word) {
        const uint64_t high = 0xF0F0F0F0F0F0F0F0u;
        return ((word & high) | (((word + 0x0606060606060606u) & high) >> 4)) == 0x3333333333333333u;
    }

    /* The number that eight digits write: pairs, then fours, then all, each step in one multiplication. */
    static inline uint32_t number_of(uint64_t digits) {
        digits = (digits & 0x0F0F0F0F0F0F0F0Fu) * 2561 >> 8;
        digits = (digits & 0x00FF00FF00FF00FFu) * 6553601 >> 16;
        return (uint32_t)((digits & 0x0000FFFF0000FFFFu) * 42949672960001u >> 32);
    }

    /* Ask for the line of the cache in which a byte stands. */
    static inline void prefetch(const unsigned char *byte) {
    #if defined(__GNUC__)
        __builtin_prefetch(byte);
    #endif
    }

    static inline void store_word(char *place, uint64_t word) {
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        memcpy(place, &word, 8);
    }

    /* The eight digits of a number below 10**8, the reverse of `number_of`: fours, then pairs, then all. */
    static inline uint64_t digits_of(uint32_t number) {
        uint64_t rest = number / 10000 | (uint64_t)(number % 10000) << 32;
        uint64_t pairs = (rest * 10486 >> 20) & 0x0000007F0000007Fu; /* by 100 */
        pairs |= (rest - 100 * pairs) << 16;
        rest = (pairs * 103 >> 10) & 0x000F000F000F000Fu; /* by 10 */
        rest |= (pairs - 10 * rest) << 8;
        return rest | 0x3030303030303030u;
    }

    /* Copy exactly so many bytes, short ones without a call: in two blocks that may overlap. */
    static inline void copy_exactly(char *to, const char *from, size_t size) {
        if (size > 64)
            memcpy(to, from, size);
        else if (size > 32) {
            memcpy(to, from, 32);
            memcpy(to + size - 32, from + size - 32, 32);
        } else if (size >= 16) {
            memcpy(to, from, 16);
            memcpy(to + size - 16, from + size - 16, 16);
        } else if (size >= 8) {
            memcpy(to, from, 8);
            memcpy(to + size - 8, from + size - 8, 8);
        } else if (size >= 4) {
            memcpy(to, from, 4);
            memcpy(to + size - 4, from + size - 4, 4);
        } else if (size) {
            to[0] = from[0];
            to[size / 2] = from[size / 2];
            to[size - 1] = from[size - 1];
        }
    }

    /* Copy a text. Short ones go in whole blocks, which is quicker, where `roomy` says that 64 bytes from its start
       on may be read; that many may always be written. */
    static inline void copy_text(char *to, const unsigned char *from, int64_t size, int roomy) {
        if (!roomy || size > 64) {
            memcpy(to, from, (size_t)size);
            return;
        }
        memcpy(to, from, 16);
        if (size > 16)
            memcpy(to + 16, from + 16, 16);
        if (size > 32)
            memcpy(to + 32, from + 32, 32);
    }
    """
    const char *PHPMQ_VERSION
    uint64_t load_word(const unsigned char *data) noexcept nogil
    bint are_digits(uint64_t word) noexcept nogil
    unsigned int number_of(uint64_t digits) noexcept nogil
    void prefetch(const unsigned char *byte) noexcept nogil
    void store_word(char *place, uint64_t word) noexcept nogil
    uint64_t digits_of(unsigned int number) noexcept nogil
    void copy_exactly(char *to, const char *from_, size_t size) noexcept nogil
    void copy_text(char *to, const unsigned char *from_, int64_t size, bint roomy) noexcept nogil

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    void *PyUnicode_DATA(object text)
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 largest)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

__version__ = PHPMQ_VERSION.decode()

__all__ = [
    "Acknowledge",
    "Consume",
    "DeadLetter",
    "Decoder",
    "Dispatch",
    "FrameDecoder",
    "Message",
    "Receipt",
    "Requeue",
    "Send",
    "decode",
    "detect_packet_header_size",
    "encode",
    "encode_frame",
    "encode_into",
    "encode_many",
    "iter_frames",
    "iter_messages",
    "scan",
]


# --- One frame -------------------------------------------------------------------------------------

# Faults as numbers for the C code; the order is that of the enum.
cdef enum:
    NO_FAULT
    NOT_A_MESSAGE
    BAD_DIGITS
    UNSUPPORTED_VERSION
    UNKNOWN_MESSAGE_TYPE
    PACKET_COUNT_MISMATCH
    NOT_A_PACKET
    UNEXPECTED_PACKET
    DUPLICATE_PACKET
    TOO_LARGE
    BAD_INTEGER
    TRUNCATED
    TRAILING_DATA

cdef tuple FAULTS = (None, *Fault)

cdef enum:
    SEND = 1
    CONSUME = 2
    DISPATCH = 3
    ACKNOWLEDGE = 4
    REQUEUE = 5
    DEAD_LETTER = 6

cdef enum:
    QUEUE = 1
    CONTENT = 2
    MESSAGE_ID = 3
    COUNT = 4
    TTL = 5

cdef enum:
    HEADER = 8
    MOST_PACKETS = 99
    MOST_INTEGER_DIGITS = 19

# By message type and packet count, the packet types of each form: as a bit set, and one by one in canonical order.
# 0 where there is no such form, and behind the last packet.
cdef unsigned int[7][5] FORMS
cdef int[7][5][4] ORDERS

# How a plain packet header begins, by the packet type: "P0", the type, and zeros.
cdef uint64_t[10] HEADS


cdef int fill_forms() except -1:
    cdef int type, count, place, packet
    memset(FORMS, 0, sizeof(FORMS))
    memset(ORDERS, 0, sizeof(ORDERS))
    for (type, count), form in CATALOGUE.items():
        for place, packet in enumerate(form.packets):
            FORMS[type][count] |= 1u << packet
            ORDERS[type][count][place] = packet
    for packet in range(10):
        HEADS[packet] = 0x3030303030003050u | <uint64_t>(c'0' + packet) << 16
    return 0


fill_forms()

cdef enum Verdict:
    WHOLE
    MORE
    FAULTY

cdef struct Span:
    int type
    int64_t start
    int64_t size

# One frame being judged. Places count from its first byte, so that a walk goes on where it was when more
# bytes have come, wherever these lie by then. Every byte is read once: the caller's memory may change.
cdef struct Walk:
    int header_size
    int64_t limit
    bint messages             # judge by the catalogue too, not only the framing
    int64_t at                # where the header or the content in hand begins
    int64_t end               # where the content in hand ends
    bint in_content
    int judged                # bytes of the header in hand that were found good
    int type
    int count
    unsigned int allowed      # the packet types of this form, as a bit set; only for messages
    int begun                 # packets whose header is whole
    unsigned int seen         # their types, as a bit set
    int packet_type
    int64_t length
    int64_t number            # the TTL or the count; no form has both
    int fault
    int64_t fault_at
    uint64_t[10] last_digits  # of the last plain header of each packet type, and the length that they mean
    int64_t[10] last_lengths
    Span[MOST_PACKETS] packets  # by packet type for messages, else in the order of the wire


cdef inline void begin(Walk *walk, bint messages) noexcept nogil:
    walk.messages = messages
    walk.at = 0
    walk.in_content = False
    walk.judged = 0


cdef void forget_lengths(Walk *walk) noexcept nogil:
    """Let the last length of each packet type be a plain 0."""
    memset(walk.last_digits, c'0', sizeof(walk.last_digits))
    memset(walk.last_lengths, 0, sizeof(walk.last_lengths))


cdef inline bint is_new(const Walk *walk) noexcept nogil:
    return walk.at == 0 and walk.judged == 0


cdef inline Verdict fail(Walk *walk, int fault, int64_t at) noexcept nogil:
    walk.fault = fault
    walk.fault_at = at
    return FAULTY


cdef inline bint is_digit(unsigned char byte) noexcept nogil:
    return c'0' <= byte <= c'9'


cdef inline bint is_known_type(int type) noexcept nogil:
    return SEND <= type <= DEAD_LETTER


cdef inline bint is_form(Walk *walk) noexcept nogil:
    walk.allowed = FORMS[walk.type][walk.count] if walk.count < 5 else 0
    return walk.allowed != 0


cdef inline int plain_message_header(const unsigned char *header) noexcept nogil:
    """The type and the count of a message header, as one number of five digits; -1 where it needs a closer look."""
    cdef uint64_t word = load_word(header)
    cdef uint64_t digits = word >> 24 << 24 | 0x303030
    return <int>number_of(digits) if (word & 0xFFFFFF) == 0x313048 and are_digits(digits) else -1  # "H01"


cdef inline int plain_packet_header(Walk *walk, const unsigned char *header, int64_t *length) noexcept nogil:
    """The type of a packet header, of one digit, and its length, of eight; -1 where it needs a closer look."""
    cdef unsigned int type = <unsigned int>header[2] - <unsigned int>c'0'
    return <int>type if type <= 9 and is_plain_header(walk, header, walk.header_size, type, length) else -1


cdef inline bint is_plain_header(
    Walk *walk, const unsigned char *header, int64_t header_size, unsigned int type, int64_t *length
) noexcept nogil:
    """Whether this is a packet header of that type with a length of eight digits, which is given then."""
    cdef uint64_t zeros = 0x3030303030303030u
    cdef uint64_t last = load_word(header + header_size - 8)
    if (
        load_word(header) ^ HEADS[type]
        | load_word(header + 8) ^ zeros
        | load_word(header + 16) ^ zeros
        | load_word(header + header_size - 16) ^ zeros  # which in a header of 32 bytes is the same again
    ):
        return False
    # Lengths of one packet type mostly repeat. A processor goes on with the old length before it knows that the
    # digits are the same, where it would have to wait for the end of a multiplication.
    if last != walk.last_digits[type]:
        if not are_digits(last):
            return False
        walk.last_digits[type] = last
        walk.last_lengths[type] = number_of(last)
    length[0] = walk.last_lengths[type]
    return True


cdef inline bint is_plain_message(
    Walk *walk, const unsigned char *frame, int64_t size, int64_t header_size
) noexcept nogil:
    """Walk over a message that is whole and right, its headers plain and its packets in canonical order.

    At least the message header is at hand. False says nothing but: look closer.
    """
    cdef int64_t most = min(size, walk.limit)
    cdef int64_t at = HEADER
    cdef int64_t length
    cdef uint64_t word
    cdef unsigned int type, count, packet, step
    word = load_word(frame)
    type = <unsigned int>(word >> 40 & 0xFF) - <unsigned int>c'0'
    count = <unsigned int>(word >> 56) - <unsigned int>c'0'
    if (word & 0x00FF00FFFFFFFFFFu) != 0x0030003030313048u or type > DEAD_LETTER or count > 4:  # "H0100", "0" between
        return False
    if FORMS[type][count] == 0:
        return False
    for step in range(count):
        packet = ORDERS[type][count][step]
        if size - at < header_size or not is_plain_header(walk, frame + at, header_size, packet, &length):
            return False
        at += header_size
        if length > most - at:
            return False
        if packet >= COUNT and not (
            1 <= length <= MOST_INTEGER_DIGITS and is_integer(frame + at, length, &walk.number)
        ):
            return False
        walk.packets[packet].start = at
        walk.packets[packet].size = length
        at += length
    walk.type = type
    walk.count = walk.begun = count
    walk.at = at
    return True


cdef Verdict walk_on(Walk *walk, const unsigned char *frame, int64_t size) noexcept nogil:
    """Judge what is new of a frame of which `size` bytes are at hand."""
    cdef Verdict verdict
    if walk.at == 0:
        verdict = message_header(walk, frame, size)
        if verdict != WHOLE:
            return verdict
    while True:
        if walk.in_content:
            if size < walk.end:
                return MORE
            if walk.messages and walk.packet_type >= COUNT and not is_integer(
                frame + walk.at, walk.length, &walk.number
            ):
                return fail(walk, BAD_INTEGER, walk.at)
            walk.at = walk.end
            walk.in_content = False
            walk.judged = 0
        if walk.begun == walk.count:
            return WHOLE
        verdict = packet_header(walk, frame + walk.at, size - walk.at)
        if verdict != WHOLE:
            return verdict


cdef inline Verdict message_header(Walk *walk, const unsigned char *header, int64_t size) noexcept nogil:
    cdef int number = plain_message_header(header) if size >= HEADER else -1
    if number < 0:
        return message_header_by_bytes(walk, header, min(size, HEADER))
    walk.type = number / 100
    walk.count = number % 100
    if walk.messages:
        if not is_known_type(walk.type):
            return fail(walk, UNKNOWN_MESSAGE_TYPE, 3)
        if not is_form(walk):
            return fail(walk, PACKET_COUNT_MISMATCH, 6)
    return begin_packets(walk)


cdef Verdict message_header_by_bytes(Walk *walk, const unsigned char *header, int64_t size) noexcept nogil:
    """Judge a header that is not whole yet, or has a fault."""
    cdef int digit
    if walk.judged == 0 and size > 0:
        if header[0] != c'H':
            return fail(walk, NOT_A_MESSAGE, 0)
        walk.judged = 1
        walk.type = 0
    while walk.judged < size:
        if not is_digit(header[walk.judged]):
            return fail(walk, BAD_DIGITS, walk.judged)
        digit = header[walk.judged] - c'0'
        if walk.judged <= 2:
            walk.type = walk.type * 10 + digit  # the version, until it is judged
            if walk.judged == 2:
                if walk.type != 1:
                    return fail(walk, UNSUPPORTED_VERSION, 1)
                walk.type = 0
        elif walk.judged <= 5:
            walk.type = walk.type * 10 + digit
            if walk.judged == 5 and walk.messages and not is_known_type(walk.type):
                return fail(walk, UNKNOWN_MESSAGE_TYPE, 3)
        walk.judged += 1
    return MORE  # a whole header is plain, or has met its fault


cdef inline Verdict begin_packets(Walk *walk) noexcept nogil:
    walk.at = HEADER
    walk.judged = 0
    walk.begun = 0
    walk.seen = 0
    return WHOLE


cdef inline Verdict packet_header(Walk *walk, const unsigned char *header, int64_t size) noexcept nogil:
    cdef int fault
    cdef int type = plain_packet_header(walk, header, &walk.length) if size >= walk.header_size else -1
    if type < 0:
        return packet_header_by_bytes(walk, header, min(size, walk.header_size))
    walk.packet_type = type
    fault = judge_packet_type(walk)
    return fail(walk, fault, walk.at + 1) if fault else begin_content(walk)


cdef Verdict packet_header_by_bytes(Walk *walk, const unsigned char *header, int64_t size) noexcept nogil:
    cdef int digit, fault
    if walk.judged == 0 and size > 0:
        if header[0] != c'P':
            return fail(walk, NOT_A_PACKET, walk.at)
        walk.judged = 1
        walk.packet_type = 0
        walk.length = 0
    while walk.judged < size:
        if not is_digit(header[walk.judged]):
            return fail(walk, BAD_DIGITS, walk.at + walk.judged)
        digit = header[walk.judged] - c'0'
        if walk.judged <= 2:
            walk.packet_type = walk.packet_type * 10 + digit
            if walk.judged == 2:
                fault = judge_packet_type(walk)
                if fault:
                    return fail(walk, fault, walk.at + 1)
        elif walk.length > (INT64_MAX - digit) / 10:
            walk.length = INT64_MAX  # stays there, and is over every limit
        else:
            walk.length = walk.length * 10 + digit
        walk.judged += 1
    return MORE if walk.judged < walk.header_size else begin_content(walk)


cdef inline int judge_packet_type(Walk *walk) noexcept nogil:
    if not walk.messages:
        return NO_FAULT
    if walk.packet_type > TTL or not (walk.allowed >> walk.packet_type & 1):
        return UNEXPECTED_PACKET
    return DUPLICATE_PACKET if walk.seen >> walk.packet_type & 1 else NO_FAULT


cdef inline Verdict begin_content(Walk *walk) noexcept nogil:
    cdef int64_t start = walk.at + walk.header_size
    cdef Span *packet
    if walk.length > walk.limit - start:
        return fail(walk, TOO_LARGE, walk.at + 3)
    walk.at = start
    walk.end = start + walk.length
    walk.in_content = True
    if walk.messages:
        if walk.packet_type >= COUNT and not 1 <= walk.length <= MOST_INTEGER_DIGITS:
            return fail(walk, BAD_INTEGER, start)
        walk.seen |= 1u << walk.packet_type
        packet = &walk.packets[walk.packet_type]
    else:
        packet = &walk.packets[walk.begun]
    packet.type = walk.packet_type
    packet.start = start
    packet.size = walk.length
    walk.begun += 1
    return WHOLE


cdef inline bint is_integer(const unsigned char *content, int64_t size, int64_t *number) noexcept nogil:
    """Whether the content, of 1 to 19 bytes, is canonical; and the number that it is then."""
    cdef unsigned int digit = <unsigned int>content[0] - <unsigned int>c'0'
    cdef uint64_t result = digit
    cdef int64_t place
    if digit > 9 or (digit == 0 and size > 1):
        return False
    for place in range(1, size):
        digit = <unsigned int>content[place] - <unsigned int>c'0'
        if digit > 9:
            return False
        result = result * 10 + digit  # at most 19 digits: below 2**64
    number[0] = <int64_t>result
    return result <= <uint64_t>INT64_MAX


# --- From frame to frame ---------------------------------------------------------------------------

cdef enum State:
    FRAMES      # a frame begins at `at`
    BROKEN      # the frame at `at` has a fault, and this ends it all: it may have to be told again
    OUTLINE     # only the message layer objects to the frame at `at`: where would it end?
    SEARCH      # the damage goes on at least up to `at`; does a frame begin there?
    DAMAGED     # the damage ends at `at`, and is not yet taken

cdef enum Found:
    NOTHING     # more bytes are needed; at the end of the input: all is read
    ITEM        # a whole frame, at `at`
    DAMAGE
    FAULT
    FULL        # an item or a damage that the rows have no room for
    NO_MEMORY

# A reader's place in a stream of frames. Offsets are absolute.
cdef struct Cursor:
    bint messages
    bint skip
    State state
    int64_t at
    int64_t damage_start
    int fault
    int64_t fault_at
    Walk walk


cdef void place(Cursor *cursor) noexcept nogil:
    """Put the cursor at the start of the input."""
    cursor.state = FRAMES
    cursor.at = 0
    begin(&cursor.walk, cursor.messages)


cdef inline Found find_next(
    Cursor *cursor, const unsigned char *data, int64_t origin, int64_t stop, bint final
) noexcept nogil:
    """Find the next item in the bytes from `origin` (where `data` points) up to `stop`, and stay before it."""
    if is_plain_next(cursor, data, origin, stop):
        return ITEM
    return look_closer(cursor, data, origin, stop, final)


cdef inline bint is_plain_next(Cursor *cursor, const unsigned char *data, int64_t origin, int64_t stop) noexcept nogil:
    """`find_next` for a message that needs no closer look; False says nothing."""
    cdef Walk *walk = &cursor.walk
    cdef const unsigned char *frame
    cdef int64_t size = stop - cursor.at
    if not (cursor.messages and cursor.state == FRAMES and is_new(walk) and size >= HEADER):
        return False
    frame = data + (cursor.at - origin)
    if walk.header_size == 32:
        return is_plain_message(walk, frame, size, 32)  # where the compiler knows the size, it is quicker
    return is_plain_message(walk, frame, size, walk.header_size)


cdef Found look_closer(
    Cursor *cursor, const unsigned char *data, int64_t origin, int64_t stop, bint final
) noexcept nogil:
    """`find_next` for whatever stands there."""
    cdef Verdict verdict
    cdef const unsigned char *candidate
    cdef int64_t end
    while True:
        if cursor.state == FRAMES:
            if cursor.at == stop:
                return NOTHING
            verdict = walk_on(&cursor.walk, data + (cursor.at - origin), stop - cursor.at)
            if verdict == WHOLE:
                return ITEM
            if verdict == FAULTY:
                cursor.fault = cursor.walk.fault
                cursor.fault_at = cursor.at + cursor.walk.fault_at
            elif final:
                cursor.fault = TRUNCATED
                cursor.fault_at = cursor.at
            else:
                return NOTHING
            cursor.damage_start = cursor.at
            if not cursor.skip:
                cursor.state = BROKEN
                return FAULT
            if cursor.fault in (
                UNKNOWN_MESSAGE_TYPE, PACKET_COUNT_MISMATCH, UNEXPECTED_PACKET, DUPLICATE_PACKET, BAD_INTEGER
            ):
                cursor.state = OUTLINE
                begin(&cursor.walk, False)
            else:
                search_on(cursor)
        elif cursor.state == OUTLINE:
            verdict = walk_on(&cursor.walk, data + (cursor.at - origin), stop - cursor.at)
            end = cursor.at + cursor.walk.at
            if not final and (verdict == MORE or (verdict == WHOLE and end == stop)):
                return NOTHING
            if verdict == WHOLE and (end == stop or data[end - origin] == c'H'):
                cursor.state = DAMAGED
                cursor.at = end
                begin(&cursor.walk, cursor.messages)
            else:
                search_on(cursor)
        elif cursor.state == SEARCH:
            candidate = NULL
            if cursor.at < stop:
                candidate = <const unsigned char *>memchr(
                    data + (cursor.at - origin), c'H', <size_t>(stop - cursor.at)
                )
            if candidate == NULL:
                cursor.at = stop
                if not final:
                    return NOTHING
                cursor.state = DAMAGED
                continue
            cursor.at = origin + (candidate - data)
            verdict = walk_on(&cursor.walk, candidate, stop - cursor.at)
            if verdict == WHOLE:
                cursor.state = DAMAGED
            elif verdict == MORE and not final:
                return NOTHING
            else:
                search_on(cursor)
        else:
            return FAULT if cursor.state == BROKEN else DAMAGE


cdef inline void search_on(Cursor *cursor) noexcept nogil:
    cursor.state = SEARCH
    cursor.at += 1
    begin(&cursor.walk, cursor.messages)


# How many bytes are looked at before a signal can interrupt: milliseconds of frames, and a quarter of a second of the
# worst junk.
cdef int64_t PIECE = 16 * 1024 * 1024


cdef inline int64_t next_pause(int64_t at, int64_t stop) noexcept nogil:
    return stop if stop - at <= PIECE else at + PIECE


cdef inline int64_t first_pause(const Cursor *cursor, int64_t stop) noexcept nogil:
    # It must not be before what an earlier search has walked over.
    return next_pause(cursor.at + cursor.walk.at, stop)


cdef inline bint is_paused(Found found, int64_t *pause, int64_t stop) except -1:
    """Whether a search ended for nothing but the pause. Signals are handled then, and the next pause is set.

    What a signal raises leaves the cursor where it is, and a later search goes on from there.
    """
    if found != NOTHING or pause[0] == stop:
        return False
    PyErr_CheckSignals()
    pause[0] = next_pause(pause[0], stop)
    return True


cdef enum:
    CACHE_LINE = 64
    LEAST_AHEAD = 512  # bytes of a frame
    MOST_AHEAD = 4096


cdef inline void take(Cursor *cursor, Found found) noexcept nogil:
    """Step over what `find_next` found."""
    cursor.state = FRAMES
    if found == ITEM:
        cursor.at += cursor.walk.at
        begin(&cursor.walk, cursor.messages)


cdef inline void read_ahead(
    const Cursor *cursor, const unsigned char *data, int64_t origin, int64_t stop
) noexcept nogil:
    """While the content of a large frame is copied, have the next one come from memory.

    A processor sees by itself that short frames are read one behind another. But a walk looks behind a large content
    first, and would wait there.
    """
    cdef int64_t place = cursor.at + cursor.walk.at
    cdef int64_t end = min(stop, place + min(cursor.walk.at, <int64_t>MOST_AHEAD))
    if cursor.walk.at >= LEAST_AHEAD:
        while place < end:
            prefetch(data + (place - origin))
            place += CACHE_LINE


# --- Arguments -------------------------------------------------------------------------------------

cdef object to_int(object value, str name):
    """An exact `int` from anything with `__index__` but `bool`."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    return int.__index__(_index(value))


cdef object DEFAULT_SIZE = DEFAULT_PACKET_HEADER_SIZE  # small numbers are one object each


cdef int to_header_size(object value) except -1:
    if value is DEFAULT_SIZE:
        return 32
    size = to_int(value, "packet_header_size")
    if size == 32 or size == 35 or size == 36:
        return size
    raise ValueError(f"packet_header_size must be 32, 35 or 36, not {number_text(size)}")


cdef int64_t to_limit(object value) except -1:
    if value is None:
        return INT64_MAX
    number = to_int(value, "max_frame_size")
    cdef int64_t limit
    try:
        limit = number
    except OverflowError:
        limit = 0
    if limit < HEADER:
        raise ValueError(f"max_frame_size must be None or from 8 to 2**63-1, not {number_text(number)}")
    return limit


cdef bint to_skip(object value) except -1:
    if not isinstance(value, str):
        raise TypeError(f"on_fault must be a str, not {type(value).__name__}")
    if value not in ("raise", "skip"):
        raise ValueError(f"on_fault must be 'raise' or 'skip', not {value!r}")
    return value == "skip"


cdef int set_up(Cursor *cursor, bint messages, object header_size, object max_frame_size, object on_fault) except -1:
    forget_lengths(&cursor.walk)
    cursor.messages = messages
    cursor.walk.header_size = to_header_size(header_size)
    cursor.walk.limit = to_limit(max_frame_size)
    cursor.skip = to_skip(on_fault)
    place(cursor)
    return 0


cdef int acquire(object data, Py_buffer *view, str name, int flags = PyBUF_SIMPLE) except -1:
    try:
        PyObject_GetBuffer(data, view, flags)
    except (BufferError, TypeError):
        kind = "writable C-contiguous" if flags == PyBUF_WRITABLE else "C-contiguous"
        raise TypeError(f"{name} must be a {kind} bytes-like object, not {type(data).__name__}") from None
    return 0


cdef str to_text(object value, str name):
    if not PyUnicode_Check(value):
        hint = "; decode it" if isinstance(value, (bytes, bytearray)) else ""
        raise TypeError(f"{name} must be a str, not {type(value).__name__}{hint}")
    cdef str text = PyUnicode_FromObject(value)
    if not PyUnicode_IS_COMPACT_ASCII(text):
        try:
            text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            if isinstance(error, MemoryError):  # Cython has what came instead where there was none for this error
                raise
            raise ValueError(f"{name} must be text that UTF-8 can carry: {error.reason} at {error.start}") from None
    return text


cdef bytes to_content(object value, str name):
    cdef Py_buffer view
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        raise TypeError(f"{name} must be bytes, not str; .encode() it")
    acquire(value, &view, name)
    try:
        return PyBytes_FromStringAndSize(<char *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef object to_number(object value, str name):
    number = to_int(value, name)
    cdef int64_t checked
    try:
        checked = number
    except OverflowError:
        checked = -1
    if checked < 0:
        raise ValueError(f"{name} must be from 0 to 2**63-1, not {number_text(number)}")
    return number


# --- Messages --------------------------------------------------------------------------------------

@cython.no_gc
@cython.freelist(64)
cdef class _Message:
    """What the seven message classes share: all fields that any of them has, as only objects of one size can be taken
    from one list of free ones."""

    cdef readonly str queue
    cdef bytes _content
    cdef str _message_id
    cdef object _number  # the TTL or the count

    def __repr__(self):
        cdef list fields = []
        for name in self.__match_args__:
            fields.append(f"{name}={getattr(self, name)!r}")
        return f"{type(self).__name__}({', '.join(fields)})"

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return fields_of(self) == fields_of(other)

    def __hash__(self):
        return hash((type(self), fields_of(self)))

    def __bytes__(self):
        return encode(self)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __replace__(self, /, **changes):
        return type(self)(**(dict(zip(self.__match_args__, fields_of(self))) | changes))

    def __reduce__(self):
        from phpmq._backend import rebuild

        return rebuild, (type(self).__name__, fields_of(self))


cdef tuple fields_of(_Message message):
    # A list comprehension would do, but in Cython 3.3 it gives up an item twice where there is no memory for it.
    cdef list fields = []
    for name in message.__match_args__:
        fields.append(getattr(message, name))
    return tuple(fields)


cdef str first_queue(_Message message, object queue):
    # `__init__` of an extension type can be called again, and a message must not change. Its queue is set
    # last, so that a message with a queue has everything.
    if message.queue is not None:
        raise TypeError(f"{type(message).__name__} is immutable")
    return to_text(queue, "queue")


@cython.final
cdef class Send(_Message):
    """Send(queue, content, ttl=None)
--

Put a message at the end of a queue (docs/protocol.md, section 5).

Args:
    queue: the queue's name.
    content: any C-contiguous buffer; kept as `bytes`.
    ttl: seconds until it expires, 0 for never; None writes the older form without it.

Raises:
    TypeError, ValueError: for a field that the wire cannot carry; the text names it.
"""

    __match_args__ = ("queue", "content", "ttl")

    def __init__(self, queue, content, ttl=None):
        queue = first_queue(self, queue)
        self._content = to_content(content, "content")
        self._number = None if ttl is None else to_number(ttl, "ttl")
        self.queue = queue

    @property
    def content(self):
        return self._content

    @property
    def ttl(self):
        return self._number


@cython.final
cdef class Consume(_Message):
    """Consume(queue, count)
--

Ask for up to `count` messages of a queue; a new request replaces the last (docs/protocol.md, section 5).

Raises:
    TypeError, ValueError: for a field that the wire cannot carry; the text names it.
"""

    __match_args__ = ("queue", "count")

    def __init__(self, queue, count):
        queue = first_queue(self, queue)
        self._number = to_number(count, "count")
        self.queue = queue

    @property
    def count(self):
        return self._number


@cython.final
cdef class Dispatch(_Message):
    """Dispatch(queue, content, message_id, ttl=None)
--

Carry a queued message to a consumer (docs/protocol.md, section 5).

Args:
    queue: the queue's name.
    content: any C-contiguous buffer; kept as `bytes`.
    message_id: the id that the server gave it.
    ttl: seconds that are left, 0 for ever; None writes the older form without it.

Raises:
    TypeError, ValueError: for a field that the wire cannot carry; the text names it.
"""

    __match_args__ = ("queue", "content", "message_id", "ttl")

    def __init__(self, queue, content, message_id, ttl=None):
        queue = first_queue(self, queue)
        self._content = to_content(content, "content")
        self._message_id = to_text(message_id, "message_id")
        self._number = None if ttl is None else to_number(ttl, "ttl")
        self.queue = queue

    @property
    def content(self):
        return self._content

    @property
    def message_id(self):
        return self._message_id

    @property
    def ttl(self):
        return self._number


@cython.final
cdef class Acknowledge(_Message):
    """Acknowledge(queue, message_id)
--

Release a dispatched message for good (docs/protocol.md, section 5).

Raises:
    TypeError, ValueError: for a field that the wire cannot carry; the text names it.
"""

    __match_args__ = ("queue", "message_id")

    def __init__(self, queue, message_id):
        queue = first_queue(self, queue)
        self._message_id = to_text(message_id, "message_id")
        self.queue = queue

    @property
    def message_id(self):
        return self._message_id


@cython.final
cdef class Requeue(_Message):
    """Requeue(queue, message_id, ttl)
--

Put a dispatched message at the end of its queue again (docs/protocol.md, section 5).

Args:
    queue: the queue's name.
    message_id: the id that the server gave it.
    ttl: its new time to live in seconds, 0 for ever.

Raises:
    TypeError, ValueError: for a field that the wire cannot carry; the text names it.
"""

    __match_args__ = ("queue", "message_id", "ttl")

    def __init__(self, queue, message_id, ttl):
        queue = first_queue(self, queue)
        self._message_id = to_text(message_id, "message_id")
        self._number = to_number(ttl, "ttl")
        self.queue = queue

    @property
    def message_id(self):
        return self._message_id

    @property
    def ttl(self):
        return self._number


@cython.final
cdef class DeadLetter(_Message):
    """DeadLetter(queue, message_id)
--

Remove a message from its queue, whatever its TTL (docs/protocol.md, section 5).

Raises:
    TypeError, ValueError: for a field that the wire cannot carry; the text names it.
"""

    __match_args__ = ("queue", "message_id")

    def __init__(self, queue, message_id):
        queue = first_queue(self, queue)
        self._message_id = to_text(message_id, "message_id")
        self.queue = queue

    @property
    def message_id(self):
        return self._message_id


@cython.final
cdef class Receipt(_Message):
    """Receipt(queue, message_id)
--

Tell a sender the id of its message, as older servers do (docs/protocol.md, section 5).

Raises:
    TypeError, ValueError: for a field that the wire cannot carry; the text names it.
"""

    __match_args__ = ("queue", "message_id")

    def __init__(self, queue, message_id):
        queue = first_queue(self, queue)
        self._message_id = to_text(message_id, "message_id")
        self.queue = queue

    @property
    def message_id(self):
        return self._message_id


Message = Send | Consume | Dispatch | Acknowledge | Requeue | DeadLetter | Receipt

# By the number of their kind (`kind_of`).
cdef tuple MESSAGE_CLASSES = (None, Send, Consume, Dispatch, Acknowledge, Requeue, DeadLetter, Receipt)


# --- Encoding --------------------------------------------------------------------------------------

# One packet to write. Text that plain UTF-8 cannot carry has no `data` and is encoded when it is written.
cdef struct Part:
    int type
    const char *data
    Py_ssize_t size
    PyObject *text

# One frame to write; what the parts point at belongs to the message.
cdef struct Plan:
    int type
    int count
    Part[4] parts
    char[20] digits
    Py_ssize_t size
    bint takes_memory  # to write, as text is encoded then


cdef inline Part *add_part(Plan *plan, int type) noexcept:
    cdef Part *part = &plan.parts[plan.count]
    plan.count += 1
    part.type = type
    return part


cdef int add_text(Plan *plan, int type, str text) except -1:
    if text is None:
        raise TypeError("this message was never filled")
    cdef Part *part = add_part(plan, type)
    if PyUnicode_IS_COMPACT_ASCII(text):
        part.data = <const char *>PyUnicode_DATA(text)
        part.size = PyUnicode_GET_LENGTH(text)
        return 0
    try:
        part.data = PyUnicode_AsUTF8AndSize(text, &part.size)
    except UnicodeEncodeError:
        part.data = NULL
        part.text = <PyObject *>text
        plan.takes_memory = True
        part.size = len(text.encode("utf-8", "surrogateescape"))
    return 0


cdef int add_content(Plan *plan, bytes content) except -1:
    cdef Part *part = add_part(plan, CONTENT)
    part.data = PyBytes_AS_STRING(content)
    part.size = PyBytes_GET_SIZE(content)
    return 0


cdef int add_number(Plan *plan, int type, object number) except -1:
    cdef Part *part = add_part(plan, type)
    part.data = plan.digits
    part.size = write_digits(plan.digits, number)
    return 0


cdef inline Py_ssize_t write_digits(char *place, uint64_t number) noexcept nogil:
    """Write a number without leading zeros, of 20 bytes that may be written."""
    cdef Py_ssize_t size = digit_count(number)
    if size <= 8:
        store_word(place, digits_of(<unsigned int>number) >> (64 - 8 * size))
    else:
        write_field(place, size, number)
    return size


cdef inline Py_ssize_t digit_count(uint64_t number) noexcept nogil:
    cdef Py_ssize_t size = 1
    cdef uint64_t bound = 10
    while number >= bound and size < 19:
        bound *= 10
        size += 1
    return size


cdef inline void write_field(char *field, Py_ssize_t size, uint64_t number) noexcept nogil:
    """Write a number into a field of digits that it does not fill; what stands before it must be zeros."""
    while True:
        size -= 1
        field[size] = <char>(c'0' + number % 10)
        number /= 10
        if number == 0:
            return


cdef bint make_plan(object message, int header_size, Plan *plan) except -1:
    """Plan the frame of a message; False where it is none."""
    cdef int place
    cdef _Message fields
    plan.type = type_of(message)
    if plan.type == 0:
        return False
    fields = <_Message>message
    plan.count = 0
    plan.takes_memory = False
    add_text(plan, QUEUE, fields.queue)
    if fields._content is not None:
        add_content(plan, fields._content)
    if fields._message_id is not None:
        add_text(plan, MESSAGE_ID, fields._message_id)
    if fields._number is not None:
        add_number(plan, COUNT if plan.type == CONSUME else TTL, fields._number)
    plan.size = HEADER + plan.count * header_size
    for place in range(plan.count):
        plan.size += plan.parts[place].size
    return True


cdef inline int type_of(object message) noexcept:
    """The message type of a message, and 0 of anything else."""
    kind = type(message)
    if kind is Dispatch:
        return DISPATCH
    if kind is Send:
        return SEND
    if kind is Acknowledge:
        return ACKNOWLEDGE
    if kind is Consume:
        return CONSUME
    if kind is DeadLetter:
        return DEAD_LETTER
    return REQUEUE if kind is Requeue or kind is Receipt else 0


cdef inline char *write_message_header(char *out, int type, int count) noexcept nogil:
    if type <= 9 and count <= 9:
        store_word(out, 0x3030303030313048u | <uint64_t>type << 40 | <uint64_t>count << 56)  # "H0100", and "0" between
    else:
        memcpy(out, b"H0100000", HEADER)
        write_field(out + 3, 3, type)
        write_field(out + 6, 2, count)
    return out + HEADER


cdef inline char *write_packet_header(char *out, int header_size, int type, uint64_t length) noexcept nogil:
    cdef uint64_t zeros = 0x3030303030303030u
    if type > 9 or length >= 100_000_000:
        return write_long_packet_header(out, header_size, type, length)
    store_word(out, 0x3030303030003050u | <uint64_t>(c'0' + type) << 16)  # "P0", the type, zeros
    store_word(out + 8, zeros)
    store_word(out + 16, zeros)
    store_word(out + header_size - 16, zeros)
    store_word(out + header_size - 8, digits_of(<unsigned int>length))
    return out + header_size


cdef char *write_long_packet_header(char *out, int header_size, int type, uint64_t length) noexcept nogil:
    memset(out, c'0', header_size)
    out[0] = c'P'
    write_field(out + 1, 2, type)
    write_field(out + 3, header_size - 3, length)
    return out + header_size


cdef int write_plan(const Plan *plan, int header_size, char *out) except -1:
    cdef int place
    cdef const Part *part
    cdef bytes encoded
    out = write_message_header(out, plan.type, plan.count)
    for place in range(plan.count):
        part = &plan.parts[place]
        out = write_packet_header(out, header_size, part.type, part.size)
        if part.data != NULL:
            copy_exactly(out, part.data, part.size)
        else:
            encoded = (<str>part.text).encode("utf-8", "surrogateescape")
            memcpy(out, PyBytes_AS_STRING(encoded), part.size)
        out += part.size
    return 0


cdef inline bytes frame_of(const Plan *plan, int header_size):
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, plan.size)
    write_plan(plan, header_size, PyBytes_AS_STRING(frame))
    return frame


def encode(message, *, packet_header_size=DEFAULT_PACKET_HEADER_SIZE):
    """Write one message as a frame, its packets in canonical order.

    Raises:
        TypeError: if it is not a message of this codec.
        ValueError: for a `packet_header_size` other than 32, 35 or 36 (docs/protocol.md, section 1).
    """
    cdef Plan plan
    cdef int header_size = to_header_size(packet_header_size)
    if not make_plan(message, header_size, &plan):
        raise no_message(message, "message")
    return frame_of(&plan, header_size)


def encode_many(messages, *, packet_header_size=DEFAULT_PACKET_HEADER_SIZE):
    """Write the messages of an iterable as frames, one directly after the other.

    Raises:
        TypeError: if one is not a message of this codec; the text says which.
        ValueError: for a `packet_header_size` other than 32, 35 or 36 (docs/protocol.md, section 1).
    """
    cdef Plan plan
    cdef int header_size = to_header_size(packet_header_size)
    cdef tuple every = tuple(messages)
    cdef Py_ssize_t size = 0
    for number, message in enumerate(every):
        if not make_plan(message, header_size, &plan):
            raise no_message(message, f"messages[{number}]")
        size += plan.size
    cdef bytes frames = PyBytes_FromStringAndSize(NULL, size)
    cdef char *out = PyBytes_AS_STRING(frames)
    for message in every:
        make_plan(message, header_size, &plan)
        write_plan(&plan, header_size, out)
        out += plan.size
    return frames


def encode_into(message, buffer, offset=0, *, packet_header_size=DEFAULT_PACKET_HEADER_SIZE):
    """Write one message as a frame into a writable buffer and return how many bytes that took.

    Args:
        message: the message.
        buffer: any writable C-contiguous buffer.
        offset: where in it the frame begins, in bytes.
        packet_header_size: 32, 35 or 36 bytes (docs/protocol.md, section 1).

    Raises:
        TypeError: if it is not a message of this codec, or the buffer is read-only or not contiguous.
        ValueError: if the offset is negative or the room too small. Nothing is written then.
    """
    cdef Plan plan
    cdef Py_buffer view
    cdef bytes frame
    cdef int header_size = to_header_size(packet_header_size)
    if not make_plan(message, header_size, &plan):
        raise no_message(message, "message")
    place = to_int(offset, "offset")
    acquire(buffer, &view, "buffer", PyBUF_WRITABLE)
    try:
        if place < 0:
            raise ValueError(f"offset must not be negative, and is {number_text(place)}")
        if place + plan.size > view.len:
            raise ValueError(f"buffer has {view.len} bytes: no room for {plan.size} at offset {number_text(place)}")
        if plan.takes_memory:  # it is written whole or, where there is none, not at all
            frame = frame_of(&plan, header_size)
            memcpy(<char *>view.buf + <Py_ssize_t>place, PyBytes_AS_STRING(frame), plan.size)
        else:
            write_plan(&plan, header_size, <char *>view.buf + <Py_ssize_t>place)
    finally:
        PyBuffer_Release(&view)
    return plan.size


cdef object no_message(object message, str name):
    return TypeError(f"{name} must be a message of this codec, not {type(message).__name__}")


def encode_frame(type, packets, *, packet_header_size=DEFAULT_PACKET_HEADER_SIZE):
    """Write a frame of any type and any packets, known or not.

    Args:
        type: the message type, 0 to 999.
        packets: up to 99 `Packet` or (type, content) pairs; packet types are 0 to 99.
        packet_header_size: 32, 35 or 36 bytes (docs/protocol.md, section 1).

    Raises:
        TypeError, ValueError: for what a header cannot carry; the text names it.
    """
    cdef int header_size = to_header_size(packet_header_size)
    cdef int message_type = to_field(type, MAX_MESSAGE_TYPE, "type")
    cdef list ready = []
    cdef Py_ssize_t size = HEADER
    cdef bytes content
    for number, packet in enumerate(packets):
        if number == MAX_PACKET_COUNT:
            raise ValueError(f"packets must be at most {MAX_PACKET_COUNT}")
        try:
            packet_type, packet_content = packet
        except (TypeError, ValueError):
            raise TypeError(f"packets[{number}] must be a Packet or a (type, content) pair") from None
        content = to_content(packet_content, f"packets[{number}].content")
        ready.append((to_field(packet_type, MAX_PACKET_TYPE, f"packets[{number}].type"), content))
        size += header_size + len(content)
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, size)
    cdef char *out = write_message_header(PyBytes_AS_STRING(frame), message_type, len(ready))
    for packet_type, content in ready:
        out = write_packet_header(out, header_size, packet_type, len(content))
        memcpy(out, PyBytes_AS_STRING(content), len(content))
        out += len(content)
    return frame


cdef int to_field(object value, int largest, str name) except -1:
    number = to_int(value, name)
    if not 0 <= number <= largest:
        raise ValueError(f"{name} must be from 0 to {largest}, not {number_text(number)}")
    return number


# --- From places to objects ------------------------------------------------------------------------

cdef class _Reader:
    """A cursor over some bytes, and what makes objects of the places it finds."""

    cdef Cursor cursor
    cdef bint busy
    cdef str queue          # the last queue name, where it is ASCII: it mostly repeats
    cdef bytearray head     # the first bytes of a damage that are no longer at hand

    cdef int enter(self) except -1:
        if self.busy:
            raise RuntimeError(f"{type(self).__name__} is in use: it was called from within or from another thread")
        self.busy = True
        return 0

    cdef inline Found find(self, const unsigned char *data, int64_t origin, int64_t stop, bint final) except NO_MEMORY:
        """`find_next`, in pieces."""
        cdef Found found
        cdef int64_t pause
        if is_plain_next(&self.cursor, data, origin, stop):
            return ITEM
        pause = first_pause(&self.cursor, stop)
        while True:
            found = look_closer(&self.cursor, data, origin, pause, final and pause == stop)
            if not is_paused(found, &pause, stop):
                return found

    cdef object take(self, Found found, const unsigned char *data, int64_t origin):
        """Make the object of what was found, and only then step over it."""
        cdef object item
        cdef Walk *walk = &self.cursor.walk
        cdef const unsigned char *frame = data + (self.cursor.at - origin)
        if found == DAMAGE:
            item = damage_at(&self.cursor, data, origin, b"" if self.head is None else bytes(self.head))
            self.head = None
        elif self.cursor.messages:
            queue = text_like(self.queue, frame + walk.packets[QUEUE].start, walk.packets[QUEUE].size)
            self.queue = queue if PyUnicode_IS_COMPACT_ASCII(queue) else None
            item = message_at(walk, frame, queue)
        else:
            item = frame_at(&self.cursor, frame)
        take(&self.cursor, found)
        return item


cdef object message_at(const Walk *walk, const unsigned char *frame, str queue):
    cdef unsigned int packets = FORMS[walk.type][walk.count]
    cdef _Message message = new_message(kind_of(walk))
    if packets >> CONTENT & 1:
        message._content = content_at(walk, frame)
    if packets >> MESSAGE_ID & 1:
        message._message_id = text_at(frame + walk.packets[MESSAGE_ID].start, walk.packets[MESSAGE_ID].size)
    if packets >> COUNT:  # or the TTL
        message._number = walk.number
    message.queue = queue
    return message


cdef inline _Message new_message(int kind):
    # A call of a class that is known by its name is a call of a C function.
    if kind == SEND:
        return Send.__new__(Send)
    if kind == CONSUME:
        return Consume.__new__(Consume)
    if kind == DISPATCH:
        return Dispatch.__new__(Dispatch)
    if kind == ACKNOWLEDGE:
        return Acknowledge.__new__(Acknowledge)
    if kind == REQUEUE:
        return Requeue.__new__(Requeue)
    if kind == DEAD_LETTER:
        return DeadLetter.__new__(DeadLetter)
    return Receipt.__new__(Receipt)


cdef object damage_at(const Cursor *cursor, const unsigned char *data, int64_t origin, bytes head):
    cdef int64_t start = cursor.damage_start + len(head)
    head += bytes_at(data, start - origin, cursor.at - origin, DAMAGE_DATA_SIZE - len(head))
    return Damage(cursor.damage_start, cursor.at, FAULTS[cursor.fault], cursor.fault_at, head)


cdef object error_at(const Cursor *cursor, const unsigned char *data, int64_t origin, int64_t stop):
    """The exception for the fault that was found, with what is at hand to show."""
    cdef const unsigned char *frame = data + (cursor.at - origin)
    cdef int64_t size = stop - cursor.at
    cdef bytes found = bytes_at(data, cursor.fault_at - origin, stop - origin, found_size(cursor))
    cdef str hint = ""
    if cursor.fault_at < cursor.at + HEADER:
        hint = foreign_hint(bytes_at(frame, 0, size, HEADER))
    elif cursor.fault == NOT_A_PACKET:
        hint = foreign_hint(found)
    if not hint and cursor.walk.header_size == 32:
        hint = other_size_hint(frame, size, cursor.walk.limit)
    if cursor.fault == TRUNCATED:
        return IncompleteMessage(cursor.fault_at, found, missing(&cursor.walk, size), hint)
    return ProtocolError(FAULTS[cursor.fault], cursor.fault_at, found, hint)


cdef inline str text_like(str last, const unsigned char *text, Py_ssize_t size):
    """The text, which is `last` (None or ASCII) again where it says the same."""
    if (
        last is not None
        and PyUnicode_GET_LENGTH(last) == size
        and memcmp(PyUnicode_DATA(last), text, size) == 0
    ):
        return last
    return text_at(text, size)


cdef inline str text_at(const unsigned char *text, Py_ssize_t size):
    # It is judged when it is copied: the caller's memory may change.
    cdef str copied = PyUnicode_New(size, 127)
    cdef const unsigned char *data = <const unsigned char *>PyUnicode_DATA(copied)
    memcpy(<void *>data, text, size)
    return copied if is_ascii(data, size) else PyUnicode_DecodeUTF8(<const char *>data, size, "surrogateescape")


cdef inline bytes content_at(const Walk *walk, const unsigned char *frame):
    return PyBytes_FromStringAndSize(
        <const char *>frame + walk.packets[CONTENT].start, walk.packets[CONTENT].size
    )


cdef object frame_at(const Cursor *cursor, const unsigned char *frame):
    cdef const Walk *walk = &cursor.walk
    cdef const Span *packet
    cdef list packets = []
    cdef int number
    for number in range(walk.count):
        packet = &walk.packets[number]
        content = PyBytes_FromStringAndSize(<const char *>frame + packet.start, packet.size)
        packets.append(record(Packet, (packet.type, content)))
    return record(Frame, (walk.type, tuple(packets), cursor.at, walk.at))


cdef inline object record(object kind, tuple fields):
    """A named tuple, without the Python function that its class is called through."""
    cdef tuple arguments = (fields,)
    return (<PyTypeObject *>tuple).tp_new(kind, <PyObject *>arguments, NULL)


cdef bytes bytes_at(const unsigned char *data, int64_t start, int64_t stop, int64_t most):
    cdef int64_t size = max(min(stop - start, most), 0)
    return PyBytes_FromStringAndSize(<const char *>data + start, size) if size else b""


cdef int64_t found_size(const Cursor *cursor) except -1:
    """How many bytes show the fault: those of the field, where it is one."""
    if cursor.fault == BAD_DIGITS:
        return 1
    if cursor.fault in (UNSUPPORTED_VERSION, PACKET_COUNT_MISMATCH, UNEXPECTED_PACKET, DUPLICATE_PACKET):
        return 2
    if cursor.fault == UNKNOWN_MESSAGE_TYPE:
        return 3
    if cursor.fault == TOO_LARGE:
        return cursor.walk.header_size - 3
    if cursor.fault == BAD_INTEGER:
        return min(cursor.walk.length, <int64_t>FOUND_SIZE)
    return FOUND_SIZE


cdef object missing(const Walk *walk, int64_t size):
    """How many bytes are known to be missing of a frame (docs/protocol.md, section 4)."""
    if walk.at == 0:
        return HEADER - size
    rest = walk.header_size * (walk.count - walk.begun)
    return rest + (walk.end if walk.in_content else walk.at) - size


cdef str other_size_hint(const unsigned char *frame, int64_t size, int64_t limit):
    cdef Walk walk
    walk.limit = limit
    forget_lengths(&walk)
    for walk.header_size in (35, 36):
        begin(&walk, False)
        if walk_on(&walk, frame, size) == WHOLE:
            return header_size_hint(walk.header_size)
    return ""


# --- Reading ---------------------------------------------------------------------------------------

@cython.final
cdef class _Items(_Reader):
    """The items of a whole input, which stays exported until they are exhausted."""

    cdef Py_buffer view
    cdef bint is_open

    def __dealloc__(self):
        self.let_go()

    cdef int open(self, object data, bint messages, object header_size, object limit, object on_fault) except -1:
        acquire(data, &self.view, "data")
        self.is_open = True
        set_up(&self.cursor, messages, header_size, limit, on_fault)
        return 0

    cdef void let_go(self) noexcept:
        if self.is_open:
            self.is_open = False
            PyBuffer_Release(&self.view)

    def __iter__(self):
        return self

    @cython.critical_section
    def __next__(self):
        cdef const unsigned char *data
        cdef Found found
        self.enter()
        try:
            if not self.is_open:
                raise StopIteration
            data = <const unsigned char *>self.view.buf
            found = self.find(data, 0, self.view.len, True)
            if found == ITEM or found == DAMAGE:
                read_ahead(&self.cursor, data, 0, self.view.len)
                return self.take(found, data, 0)
            error = error_at(&self.cursor, data, 0, self.view.len) if found == FAULT else None
            self.let_go()
            if error is not None:
                raise error
            raise StopIteration
        finally:
            self.busy = False


def iter_messages(
    data,
    *,
    packet_header_size=DEFAULT_PACKET_HEADER_SIZE,
    max_frame_size=DEFAULT_MAX_FRAME_SIZE,
    on_fault="raise",
):
    """Iterate over the messages of a whole input.

    Args:
        data: any C-contiguous buffer; it stays exported until the iterator is exhausted.
        packet_header_size: 32, 35 or 36 bytes (docs/protocol.md, section 1).
        max_frame_size: the largest frame to accept, in bytes; None for 2**63-1.
        on_fault: "raise", or "skip" to get a `Damage` for each damaged range (section 4, "Recovery").

    Raises:
        ProtocolError: while iterating, after the good messages before the fault.
        IncompleteMessage: while iterating, if the input ends inside a frame.
    """
    cdef _Items items = _Items.__new__(_Items)
    items.open(data, True, packet_header_size, max_frame_size, on_fault)
    return items


def iter_frames(
    data,
    *,
    packet_header_size=DEFAULT_PACKET_HEADER_SIZE,
    max_frame_size=DEFAULT_MAX_FRAME_SIZE,
    on_fault="raise",
):
    """Iterate over the frames of a whole input, of any type and with any packets.

    The arguments and errors are those of `iter_messages`; the faults of the message layer do not occur.
    """
    cdef _Items items = _Items.__new__(_Items)
    items.open(data, False, packet_header_size, max_frame_size, on_fault)
    return items


def decode(data, *, packet_header_size=DEFAULT_PACKET_HEADER_SIZE, max_frame_size=DEFAULT_MAX_FRAME_SIZE):
    """Read the one frame that the data is.

    Args:
        data: any C-contiguous buffer.
        packet_header_size: 32, 35 or 36 bytes (docs/protocol.md, section 1).
        max_frame_size: the largest frame to accept, in bytes; None for 2**63-1.

    Raises:
        ProtocolError: if it is not a frame, or goes on behind it.
        IncompleteMessage: if it ends inside the frame.
    """
    cdef Cursor cursor
    cdef Py_buffer view
    acquire(data, &view, "data")
    try:
        set_up(&cursor, True, packet_header_size, max_frame_size, "raise")
        return decode_one(&cursor, <const unsigned char *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef object decode_one(Cursor *cursor, const unsigned char *data, int64_t size):
    cdef Found found = find_next(cursor, data, 0, size, True)
    cdef Walk *walk = &cursor.walk
    if found == NOTHING:
        raise IncompleteMessage(0, b"", HEADER)
    if found == FAULT:
        raise error_at(cursor, data, 0, size)
    if walk.at < size:
        rest = bytes_at(data, walk.at, size, FOUND_SIZE)
        raise ProtocolError(Fault.TRAILING_DATA, walk.at, rest, foreign_hint(rest))
    return message_at(walk, data, text_at(data + walk.packets[QUEUE].start, walk.packets[QUEUE].size))


def scan(data, *, packet_header_size=DEFAULT_PACKET_HEADER_SIZE, max_frame_size=DEFAULT_MAX_FRAME_SIZE):
    """Check the messages of a whole input without making them.

    The arguments are those of `decode`. Nothing is raised for what the bytes say: the first fault, the one that
    `iter_messages` would raise, is in the `Scan`.
    """
    cdef Cursor cursor
    cdef Py_buffer view
    cdef Tally[KINDS] tallies
    cdef Found found
    cdef int64_t frames = 0
    cdef int kind
    memset(tallies, 0, sizeof(tallies))
    acquire(data, &view, "data")
    try:
        set_up(&cursor, True, packet_header_size, max_frame_size, "raise")
        found = run_in_pieces(&cursor, <const unsigned char *>view.buf, 0, view.len, True, tallies)
        error = error_at(&cursor, <const unsigned char *>view.buf, 0, view.len) if found == FAULT else None
        for kind in range(KINDS):
            frames += tallies[kind].frames
        return Scan(frames, cursor.at, error)
    finally:
        PyBuffer_Release(&view)


# How many frames of one kind there were, and their bytes.
cdef struct Tally:
    int64_t frames
    int64_t size

cdef enum:
    KINDS = 8  # one for each message class, and the first for frames of any type

cdef Found run(
    Cursor *cursor, const unsigned char *data, int64_t origin, int64_t stop, bint final, Tally *tallies
) noexcept nogil:
    """Step over all whole frames and count them; say what stands behind them."""
    cdef Found found
    cdef Tally *tally
    while True:
        found = find_next(cursor, data, origin, stop, final)
        if found != ITEM:
            return found
        tally = &tallies[kind_of(&cursor.walk)]
        tally.frames += 1
        tally.size += cursor.walk.at
        take(cursor, found)


cdef Found run_in_pieces(
    Cursor *cursor, const unsigned char *data, int64_t origin, int64_t stop, bint final, Tally *tallies
) except NO_MEMORY:
    """`run`, without the GIL."""
    cdef Found found
    cdef int64_t pause = first_pause(cursor, stop)
    while True:
        with nogil:
            found = run(cursor, data, origin, pause, final and pause == stop, tallies)
        if not is_paused(found, &pause, stop):
            return found


cdef inline int kind_of(const Walk *walk) noexcept nogil:
    if not walk.messages:
        return 0
    return KINDS - 1 if walk.type == REQUEUE and walk.count == 2 else walk.type


def detect_packet_header_size(data):
    """Find the packet header size that the data was written with (docs/protocol.md, section 1).

    Args:
        data: any C-contiguous buffer; its first 1 MiB is looked at.

    Raises:
        ValueError: if none of the sizes fits, or more than one.
    """
    cdef list fitting = []
    for size in PACKET_HEADER_SIZES:
        if fits(data, size):
            fitting.append(size)
    if not fitting:
        raise ValueError("none of the packet header sizes 32, 35 and 36 fits the data")
    if len(fitting) > 1:
        raise ValueError(f"ambiguous: the packet header sizes {' and '.join(map(str, fitting))} fit the data")
    return fitting[0]


cdef bint fits(object data, object header_size) except -1:
    """Whether the data begins with a whole frame and shows no fault."""
    cdef Cursor cursor
    cdef Py_buffer view
    cdef Tally[KINDS] tallies
    cdef int64_t size
    cdef Found found
    memset(tallies, 0, sizeof(tallies))
    acquire(data, &view, "data")
    try:
        set_up(&cursor, False, header_size, None, "raise")
        size = min(view.len, <int64_t>DETECTION_SIZE)
        found = run_in_pieces(&cursor, <const unsigned char *>view.buf, 0, size, False, tallies)
        return found == NOTHING and tallies[0].frames > 0
    finally:
        PyBuffer_Release(&view)


# --- The stream decoders ---------------------------------------------------------------------------

cdef enum:
    SMALL_BUFFER = 65536  # a buffer up to this size is kept though little of it is used


cdef class _StreamDecoder(_Reader):
    """What the two decoders share: a buffer of their own that is fed, and read from its front."""

    cdef object __weakref__
    cdef unsigned char *buffer
    cdef int64_t capacity
    cdef int64_t origin     # the offset of the buffer's first byte
    cdef int64_t stop       # the offset behind its last one
    cdef bint closed
    cdef object fault       # the error that was raised; it is raised again until `reset`

    def __cinit__(
        self,
        *,
        packet_header_size=DEFAULT_PACKET_HEADER_SIZE,
        max_frame_size=DEFAULT_MAX_FRAME_SIZE,
        on_fault="raise",
    ):
        set_up(&self.cursor, not isinstance(self, FrameDecoder), packet_header_size, max_frame_size, on_fault)

    def __dealloc__(self):
        PyMem_Free(self.buffer)

    def __class_getitem__(cls, item):
        return GenericAlias(cls, item)

    def __reduce__(self):
        raise TypeError(f"cannot pickle or copy a {type(self).__name__}")

    @property
    @cython.critical_section
    def offset(self):
        """The end of the last item given, in bytes from the start of the stream."""
        return self.given()

    @property
    @cython.critical_section
    def buffered(self):
        """The bytes that were fed and are not part of an item given yet; 0 after a fault was raised."""
        return 0 if self.fault is not None else self.stop - self.given()

    cdef int64_t given(self) noexcept:
        return self.cursor.at if self.cursor.state == FRAMES else self.cursor.damage_start

    @cython.critical_section
    def feed(self, data):
        """Take the next bytes of the stream; nothing is parsed yet.

        Args:
            data: any C-contiguous buffer; it is copied.

        Raises:
            ProtocolError: the fault that iterating has raised before.
            ValueError: if the decoder is closed.
        """
        cdef Py_buffer view
        self.enter()
        try:
            acquire(data, &view, "data")
            try:
                self.append(<const unsigned char *>view.buf, view.len)
            finally:
                PyBuffer_Release(&view)
        finally:
            self.busy = False

    @cython.critical_section
    def close(self):
        """Say that the input has ended: iterating gives the rest, and raises if a frame is cut."""
        self.enter()
        self.closed = True
        self.busy = False

    @cython.critical_section
    def reset(self):
        """Forget everything but the options: the next byte fed has offset 0."""
        self.enter()
        self.drop_buffer()
        self.closed = False
        self.fault = None
        self.head = None
        self.origin = self.stop = 0
        place(&self.cursor)
        self.forget_counts()
        self.busy = False

    cdef void forget_counts(self) noexcept:
        pass

    def __iter__(self):
        return self

    @cython.critical_section
    def __next__(self):
        cdef Found found
        self.enter()
        try:
            if self.fault is not None:
                raise again(self.fault)
            found = self.find(self.buffer, self.origin, self.stop, self.closed)
            if found == ITEM or found == DAMAGE:
                return self.take(found, self.buffer, self.origin)
            if found == NOTHING:
                raise StopIteration
            raise self.failed()
        finally:
            self.busy = False

    cdef object failed(self):
        """Remember the fault that was found, keep no bytes, and give the exception."""
        self.fault = error_at(&self.cursor, self.buffer, self.origin, self.stop)
        self.drop_buffer()
        return again(self.fault)

    cdef int append(self, const unsigned char *data, int64_t size) except -1:
        if self.fault is not None:
            raise again(self.fault)
        if size == 0:
            return 0
        if self.closed:
            raise ValueError(f"cannot feed a {type(self).__name__} that is closed")
        self.make_room(size)
        memcpy(self.buffer + (self.stop - self.origin), data, size)
        self.stop += size
        return 0

    cdef int make_room(self, int64_t size) except -1:
        """Make room for so many bytes more, in time that the bytes fed and read before have paid for."""
        cdef int64_t read = self.cursor.at - self.origin
        cdef int64_t held = self.stop - self.cursor.at
        cdef int64_t needed = held + size
        cdef int64_t capacity = needed + needed / 2
        cdef unsigned char *buffer
        cdef bint is_wide = self.capacity > SMALL_BUFFER and self.capacity / 8 > needed
        if read + needed <= self.capacity and not is_wide:
            return 0
        self.keep_head()
        if held and read:
            memmove(self.buffer, self.buffer + read, held)
        self.origin = self.cursor.at
        # Moving what is held is paid by what was read; where too little was, a larger buffer pays it ahead. The system
        # makes a large block larger without a copy.
        if needed > self.capacity or held > read or is_wide:
            buffer = <unsigned char *>PyMem_Realloc(self.buffer, capacity)
            if buffer == NULL:
                raise MemoryError
            self.buffer = buffer
            self.capacity = capacity
        return 0

    cdef int keep_head(self) except -1:
        """Keep the first bytes of a growing damage apart from the buffer, whose front is about to go."""
        cdef int64_t have, size, start
        if self.cursor.state == FRAMES:
            return 0
        if self.head is None:
            self.head = bytearray()
        have = len(self.head)
        size = min(self.cursor.at - self.cursor.damage_start - have, DAMAGE_DATA_SIZE - have)
        if size > 0:
            start = self.cursor.damage_start + have - self.origin
            self.head += bytes_at(self.buffer, start, self.stop - self.origin, size)
        return 0

    cdef void drop_buffer(self) noexcept:
        PyMem_Free(self.buffer)
        self.buffer = NULL
        self.capacity = 0


cdef object again(object error):
    return type(error)(*error.args)


@cython.final
cdef class Decoder(_StreamDecoder):
    """Decoder(*, packet_header_size=32, max_frame_size=67108864, on_fault='raise')
--

Read the messages of a stream that comes in chunks: feed it, iterate, and close it at the end.

Iterating stops where more bytes are needed and goes on when they were fed (docs/protocol.md, section 4).

Args:
    packet_header_size: 32, 35 or 36 bytes.
    max_frame_size: the largest frame to accept, in bytes; None for 2**63-1. With `on_fault="skip"` a damaged
        length can withhold good messages up to this limit, so live use wants a small one.
    on_fault: "raise", or "skip" to get a `Damage` for each damaged range.

Raises:
    RuntimeError: if it is called from within one of its own calls, or from two threads at once.
"""


@cython.final
cdef class FrameDecoder(_StreamDecoder):
    """FrameDecoder(*, packet_header_size=32, max_frame_size=67108864, on_fault='raise')
--

Read the frames of a stream that comes in chunks, of any type and with any packets.

It is used as `Decoder` is. With `on_fault="skip"` each place that looks like a frame can cost a walk over as
many as 99 packet headers.
"""


@cython.final
cdef class _Scanner(_StreamDecoder):
    """A `Decoder` that counts messages instead of making them: iterating gives only the damages."""

    cdef Tally[KINDS] tallies

    @property
    @cython.critical_section
    def counts(self):
        """How many messages of each class were met so far, and their bytes: `{Send: (frames, bytes)}`."""
        return {
            MESSAGE_CLASSES[kind]: (self.tallies[kind].frames, self.tallies[kind].size)
            for kind in range(1, KINDS)
            if self.tallies[kind].frames
        }

    cdef void forget_counts(self) noexcept:
        memset(self.tallies, 0, sizeof(self.tallies))

    @cython.critical_section
    def __next__(self):
        cdef Found found
        self.enter()
        try:
            if self.fault is not None:
                raise again(self.fault)
            found = run_in_pieces(&self.cursor, self.buffer, self.origin, self.stop, self.closed, self.tallies)
            if found == DAMAGE:
                return self.take(found, self.buffer, self.origin)
            if found == NOTHING:
                raise StopIteration
            raise self.failed()
        finally:
            self.busy = False


# --- Columns: decoding -------------------------------------------------------------------------------

# The columns by their place in `COLUMNS`.
cdef enum:
    AT_OFFSET
    AT_SIZE
    AT_TYPE
    AT_QUEUE
    AT_CONTENT
    AT_MESSAGE_ID
    AT_TTL
    AT_COUNT
    AT_FAULT
    AT_FAULT_OFFSET
    AT_RAW
    COLUMN_COUNT

cdef enum:
    SLACK = 64           # what `copy_text` may write behind a text
    FIRST_ROWS = 8192    # rows that there is room for at first
    FIRST_FIXED = 65536  # bytes of a first block of numbers, or ends
    FIRST_TEXT = 262144  # and of texts
    MOST_BLOCKS = 256    # blocks of memory that are kept for the next batches
    MOST_SPARE = 48 * 1024 * 1024  # and how many bytes they have in all

cdef dict COLUMN_NUMBERS = {name: number for number, name in enumerate(COLUMNS)}

# What the column `fault` says of a message with text that is not UTF-8.
cdef char[16] LOST_TEXT
cdef int LOST_TEXT_SIZE = len(NOT_UTF8)
memcpy(LOST_TEXT, PyBytes_AS_STRING(NOT_UTF8.encode()), LOST_TEXT_SIZE)

# What the column `type` says, by kind.
cdef char[8][64] KIND_WORDS  # each with SLACK behind
cdef int[8] KIND_WORD_SIZES

# The packet types of the columns from `queue` to `count`.
cdef int[5] PACKET_TYPES
PACKET_TYPES[:] = [QUEUE, CONTENT, MESSAGE_ID, TTL, COUNT]

# The columns that are not null, as a bit set, by message type and packet count.
cdef unsigned int[7][5] FORM_COLUMNS


cdef int fill_kinds() except -1:
    cdef int kind
    cdef bytes word
    for kind in range(1, KINDS):
        word = WORDS[MESSAGE_CLASSES[kind].__name__].encode()
        memcpy(KIND_WORDS[kind], PyBytes_AS_STRING(word), PyBytes_GET_SIZE(word))
        KIND_WORD_SIZES[kind] = PyBytes_GET_SIZE(word)
    for (type, count), form in CATALOGUE.items():
        for name in ("offset", "size", "type", *[packet.name.lower() for packet in form.packets]):
            FORM_COLUMNS[<int>type][<int>count] |= 1u << <int>COLUMN_NUMBERS[name]
    return 0


fill_kinds()


# What a row without a fault does not have.
cdef enum:
    LOST = 1 << AT_FAULT | 1 << AT_FAULT_OFFSET | 1 << AT_RAW

# A block of memory, which the column decoder asks for without the GIL.
cdef struct Block:
    char *data
    int64_t size

# A column as Arrow wants it: numbers, or texts one behind another and where each ends. It is written up to the row
# that last had a value; the nulls behind are filled in when the next one comes, which for most columns is never.
cdef struct Column:
    Block fixed            # for each row a number, or one more than rows for the ends, of which the first is 0
    Block text
    int64_t *numbers       # NULL for texts
    int32_t *ends          # NULL for numbers
    int64_t size           # bytes of text
    int64_t filled         # rows
    int64_t nulls          # among those

# The rows of a batch; columns that are not wanted have no memory.
cdef struct Rows:
    Column[COLUMN_COUNT] columns
    unsigned int wanted    # as a bit set
    bint judges_queue      # whether anything wanted depends on whether the text is UTF-8
    bint judges_message_id
    Block marks
    uint16_t *present      # for each row the columns that are not null, as a bit set
    int64_t count
    int64_t capacity       # rows
    int64_t room           # bytes that surely fit, into each block of texts and into the batch
    int64_t fixed          # bytes of a row without its texts
    int64_t most_rows
    int64_t most_bytes


cdef inline bint is_number(int column) noexcept nogil:
    return column in (AT_OFFSET, AT_SIZE, AT_TTL, AT_COUNT, AT_FAULT_OFFSET)


cdef bint grow(Block *block, int64_t size) noexcept nogil:
    """Make a block at least so large; False if there is no memory."""
    cdef void *memory
    if size > block.size:
        memory = PyMem_RawRealloc(block.data, <size_t>size)
        if memory == NULL:
            return False
        block.data = <char *>memory
        block.size = size
    return True


cdef Found make_room(Rows *rows, int64_t size, int64_t most) noexcept nogil:
    """Make room for one more row, of `size` bytes as a batch counts them; no text of it has more than `most`."""
    cdef int64_t texts = 0
    cdef int64_t room
    cdef Column *column
    cdef int number
    if rows.count == rows.most_rows:
        return FULL
    if rows.count == rows.capacity and not make_rows_room(rows):
        return NO_MEMORY
    for number in range(COLUMN_COUNT):
        texts += rows.columns[number].size
    rows.room = 0  # until all columns have it
    room = rows.most_bytes - rows.count * rows.fixed - texts
    if rows.count and size > room:
        return FULL
    for number in range(COLUMN_COUNT):
        column = &rows.columns[number]
        if column.ends != NULL:
            if column.size + most + SLACK > column.text.size and not grow(
                &column.text, max(column.size + most + SLACK, 2 * column.text.size, <int64_t>FIRST_TEXT)
            ):
                return NO_MEMORY
            room = min(room, column.text.size - SLACK - column.size)
    rows.room = room
    return ITEM


cdef bint make_rows_room(Rows *rows) noexcept nogil:
    cdef int64_t capacity = min(max(2 * rows.capacity, <int64_t>FIRST_ROWS), rows.most_rows)
    cdef int64_t size
    cdef Column *column
    cdef int number
    # Bits are made of eight rows at a time.
    if not grow(&rows.marks, (capacity + 8) * sizeof(uint16_t)):
        return False
    rows.present = <uint16_t *>rows.marks.data
    for number in range(COLUMN_COUNT):
        if not rows.wanted >> number & 1:
            continue
        column = &rows.columns[number]
        size = sizeof(int64_t) if is_number(number) else sizeof(int32_t)
        if not grow(&column.fixed, (capacity + 1) * size):
            return False
        if is_number(number):
            column.numbers = <int64_t *>column.fixed.data
        else:
            column.ends = <int32_t *>column.fixed.data
            column.ends[0] = 0
    rows.capacity = capacity
    return True


cdef void pad(Column *column, int64_t row) noexcept nogil:
    """Fill in nulls up to this row."""
    cdef int64_t place
    column.nulls += row - column.filled
    if column.ends == NULL:
        memset(column.numbers + column.filled, 0, <size_t>(row - column.filled) * sizeof(int64_t))
    else:
        for place in range(column.filled + 1, row + 1):
            column.ends[place] = <int32_t>column.size
    column.filled = row


cdef inline void put_number(Rows *rows, int column_number, int64_t value) noexcept nogil:
    cdef Column *column = &rows.columns[column_number]
    if column.numbers == NULL:
        return
    if column.filled != rows.count:
        pad(column, rows.count)
    column.numbers[rows.count] = value
    column.filled = rows.count + 1


cdef inline void put_text(
    Rows *rows, int column_number, const unsigned char *text, int64_t size, bint roomy
) noexcept nogil:
    """Put a text for which there is room; `roomy` is for `copy_text`."""
    cdef Column *column = &rows.columns[column_number]
    if column.ends == NULL:
        return
    if column.filled != rows.count:
        pad(column, rows.count)
    copy_text(column.text.data + column.size, text, size, roomy)
    column.size += size
    column.filled = rows.count + 1
    column.ends[column.filled] = <int32_t>column.size


cdef inline int64_t size_in(const Rows *rows, unsigned int present, int column_number, int64_t size) noexcept nogil:
    """The bytes of a text as a batch counts them: none where it is null, or its column is not wanted."""
    return size if present & rows.wanted & 1u << column_number else 0


cdef Found put_message(
    Rows *rows, const Walk *walk, const unsigned char *frame, int64_t at, const unsigned char *stop
) noexcept nogil:
    """Put a message into the rows: ITEM, unless it does not fit or there is no memory."""
    cdef unsigned int present = FORM_COLUMNS[walk.type][walk.count]
    cdef int kind = kind_of(walk)
    cdef const Span *queue = &walk.packets[QUEUE]
    cdef const Span *content = &walk.packets[CONTENT]
    cdef const Span *message_id = &walk.packets[MESSAGE_ID]
    cdef bint roomy = stop - frame - walk.at >= SLACK
    cdef int64_t lost_at = INT64_MAX
    cdef int64_t most = rows.fixed + SLACK + walk.at  # all its texts together, but for `raw`
    cdef Found found
    if rows.judges_queue and not is_utf8(frame + queue.start, queue.size):
        lost_at = queue.start
        present &= ~(1u << AT_QUEUE)
    if rows.judges_message_id and present >> AT_MESSAGE_ID & 1 and not is_utf8(
        frame + message_id.start, message_id.size
    ):
        lost_at = min(lost_at, message_id.start)
        present &= ~(1u << AT_MESSAGE_ID)
    if lost_at != INT64_MAX:
        present |= LOST
        most += walk.at
    if rows.count == rows.capacity or most > rows.room:
        found = make_room(rows, message_size(rows, walk, present, kind), most)
        if found != ITEM:
            return found
    rows.room -= most
    put_number(rows, AT_OFFSET, at)
    put_number(rows, AT_SIZE, walk.at)
    put_text(rows, AT_TYPE, <const unsigned char *>KIND_WORDS[kind], KIND_WORD_SIZES[kind], True)
    if present >> AT_QUEUE & 1:
        put_text(rows, AT_QUEUE, frame + queue.start, queue.size, roomy)
    if present >> AT_CONTENT & 1:
        put_text(rows, AT_CONTENT, frame + content.start, content.size, roomy)
    if present >> AT_MESSAGE_ID & 1:
        put_text(rows, AT_MESSAGE_ID, frame + message_id.start, message_id.size, roomy)
    if present >> AT_TTL & 1:
        put_number(rows, AT_TTL, walk.number)
    if present >> AT_COUNT & 1:
        put_number(rows, AT_COUNT, walk.number)
    if lost_at != INT64_MAX:
        put_fault(rows, <const unsigned char *>LOST_TEXT, LOST_TEXT_SIZE, at + lost_at, frame, walk.at)
    rows.present[rows.count] = <uint16_t>present
    rows.count += 1
    return ITEM


cdef int64_t message_size(const Rows *rows, const Walk *walk, unsigned int present, int kind) noexcept nogil:
    """The bytes of a message as a batch counts them."""
    return (
        rows.fixed
        + size_in(rows, present, AT_TYPE, KIND_WORD_SIZES[kind])
        + size_in(rows, present, AT_QUEUE, walk.packets[QUEUE].size)
        + size_in(rows, present, AT_CONTENT, walk.packets[CONTENT].size)
        + size_in(rows, present, AT_MESSAGE_ID, walk.packets[MESSAGE_ID].size)
        + size_in(rows, present, AT_FAULT, LOST_TEXT_SIZE)
        + size_in(rows, present, AT_RAW, walk.at)
    )


cdef void put_fault(
    Rows *rows, const unsigned char *name, int64_t name_size, int64_t at, const unsigned char *raw, int64_t raw_size
) noexcept nogil:
    put_text(rows, AT_FAULT, name, name_size, False)
    put_number(rows, AT_FAULT_OFFSET, at)
    put_text(rows, AT_RAW, raw, raw_size, False)


cdef Found put_damage(Rows *rows, object damage) except FAULT:
    """Put a damage into the rows: DAMAGE, or FULL."""
    cdef bytes name = damage.fault.name.encode()
    cdef bytes data = damage.data
    cdef int64_t name_size = PyBytes_GET_SIZE(name)
    cdef int64_t data_size = PyBytes_GET_SIZE(data)
    # All that takes memory comes before the first value is put.
    cdef int64_t start = damage.start
    cdef int64_t stop = damage.stop
    cdef int64_t fault_at = damage.offset
    cdef int64_t size = (
        rows.fixed + size_in(rows, LOST, AT_FAULT, name_size) + size_in(rows, LOST, AT_RAW, data_size)
    )
    cdef Found found = make_room(rows, size, name_size + data_size)
    if found == FULL:
        return FULL
    if found == NO_MEMORY:
        raise MemoryError
    put_number(rows, AT_OFFSET, start)
    put_number(rows, AT_SIZE, stop - start)
    put_fault(
        rows,
        <const unsigned char *>PyBytes_AS_STRING(name),
        name_size,
        fault_at,
        <const unsigned char *>PyBytes_AS_STRING(data),
        data_size,
    )
    rows.present[rows.count] = 1u << AT_OFFSET | 1u << AT_SIZE | LOST
    rows.count += 1
    rows.room = 0  # not known
    return DAMAGE


cdef inline bint is_utf8(const unsigned char *text, int64_t size) noexcept nogil:
    return is_ascii(text, size) or is_utf8_by_bytes(text, size)


cdef inline bint is_ascii(const unsigned char *text, int64_t size) noexcept nogil:
    cdef uint64_t high = 0
    cdef int64_t place = 0
    while place + 8 <= size:
        high |= load_word(text + place)
        place += 8
    while place < size:
        high |= text[place]
        place += 1
    return (high & 0x8080808080808080u) == 0


cdef bint is_utf8_by_bytes(const unsigned char *text, int64_t size) noexcept nogil:
    cdef int64_t place = 0
    cdef unsigned char first, lowest, highest
    cdef int more, step
    while place < size:
        first = text[place]
        lowest, highest, more = 0x80, 0xBF, 0
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                lowest = 0xA0   # shorter forms exist
            elif first == 0xED:
                highest = 0x9F  # surrogates
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                lowest = 0x90   # shorter forms exist
            elif first == 0xF4:
                highest = 0x8F  # beyond U+10FFFF
        elif first >= 0x80:
            return False
        if size - place <= more or (more and not lowest <= text[place + 1] <= highest):
            return False
        for step in range(2, more + 1):
            if text[place + step] & 0xC0 != 0x80:
                return False
        place += 1 + more
    return True


# Blocks that batches have used, for the next ones: fresh memory costs more than all the decoding. The oldest come
# first, and are the first to go.
cdef cython.pymutex SPARE_LOCK  # guards all of this where there is no GIL
cdef Block[MOST_BLOCKS] SPARE
cdef int SPARE_COUNT = 0
cdef int64_t SPARE_SIZE = 0

# The sizes of the blocks of the batch before, by column.
cdef int64_t[COLUMN_COUNT] FIXED_BEFORE
cdef int64_t[COLUMN_COUNT] TEXT_BEFORE


cdef Block take_spare(int place) noexcept:
    cdef Block block = SPARE[place]
    global SPARE_COUNT, SPARE_SIZE
    SPARE_COUNT -= 1
    SPARE_SIZE -= block.size
    memmove(&SPARE[place], &SPARE[place + 1], (SPARE_COUNT - place) * sizeof(Block))
    return block


cdef Block take_block(int64_t size):
    """A block that is large enough, and not much larger."""
    cdef Block block
    cdef int place, best = -1
    with SPARE_LOCK:
        for place in range(SPARE_COUNT):
            if size <= SPARE[place].size <= 2 * size and (best < 0 or SPARE[place].size < SPARE[best].size):
                best = place
        if best >= 0:
            return take_spare(best)
    block.size = size
    block.data = <char *>PyMem_RawMalloc(<size_t>size)
    if block.data == NULL:
        raise MemoryError
    return block


cdef void give_back(Block block) noexcept:
    global SPARE_COUNT, SPARE_SIZE
    if block.data == NULL:
        return
    if block.size > MOST_SPARE:
        PyMem_RawFree(block.data)
        return
    with SPARE_LOCK:
        while SPARE_COUNT == MOST_BLOCKS or SPARE_SIZE + block.size > MOST_SPARE:
            PyMem_RawFree(take_spare(0).data)
        SPARE[SPARE_COUNT] = block
        SPARE_COUNT += 1
        SPARE_SIZE += block.size


@cython.final
cdef class _Memory:
    """A block that is given away, as a read-only buffer."""

    cdef Block block
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("these bytes are read-only")
        buffer.buf = self.block.data
        buffer.obj = self
        buffer.len = self.size
        buffer.itemsize = 1
        buffer.readonly = True
        buffer.ndim = 1
        buffer.format = NULL
        if flags & PyBUF_FORMAT:
            buffer.format = b"B"
        buffer.shape = &buffer.len
        buffer.strides = &buffer.itemsize
        buffer.suboffsets = NULL
        buffer.internal = NULL

    def __dealloc__(self):
        give_back(self.block)


cdef _Memory memory_for(int64_t size):
    """A buffer of so many bytes that is given a block later."""
    cdef _Memory memory = _Memory.__new__(_Memory)
    memory.size = size
    return memory


cdef void give_away(Block *block, _Memory memory) noexcept:
    """Give a block to a buffer of the bytes that are used; a large rest goes back to the system."""
    cdef void *cut
    if block.size / 4 > memory.size + SLACK:
        cut = PyMem_RawRealloc(block.data, <size_t>memory.size + SLACK)
        if cut != NULL:
            block.data = <char *>cut
            block.size = memory.size + SLACK
    memory.block = block[0]
    memset(block, 0, sizeof(Block))


cdef _Memory bits_of(const Rows *rows, int column_number):
    """A bit for each row: whether its value in this column is not null."""
    cdef int64_t place, size = (rows.count + 7) / 8
    cdef _Memory memory = memory_for(size)
    memory.block = take_block(size)
    cdef unsigned char *bits = <unsigned char *>memory.block.data
    cdef const uint16_t *row
    cdef uint64_t four
    memset(bits, 0, size)
    memset(rows.present + rows.count, 0, 7 * sizeof(uint16_t))
    for place in range(2 * size):
        row = rows.present + 4 * place
        four = row[0] | <uint64_t>row[1] << 16 | <uint64_t>row[2] << 32 | <uint64_t>row[3] << 48
        four = four >> column_number & 0x0001000100010001u
        bits[place / 2] |= <unsigned char>((four * 0x0001000200040008u >> 48 & 15) << (place % 2 * 4))
    return memory


@cython.final
cdef class _ColumnDecoder(_StreamDecoder):
    """A `Decoder` that gives batches of rows; see `_decode_columns`."""

    cdef Rows rows
    cdef _Memory zeros      # what all columns without a value share
    cdef list wanted
    cdef int64_t end        # the first boundary at or behind it is the last
    cdef Py_buffer view     # the whole input, where it was given as one
    cdef bint has_view

    cdef int open(self, object data, object columns, int64_t start, object stop) except -1:
        self.wanted = []
        for name in columns:
            self.wanted.append(COLUMN_NUMBERS[name])
        self.end = INT64_MAX if stop is None else stop
        for number in self.wanted:
            self.rows.wanted |= 1u << <int>number
            self.rows.fixed += 8 if is_number(number) else 4
        self.rows.judges_queue = self.rows.wanted & (
            1u << AT_QUEUE | 1u << AT_FAULT | 1u << AT_FAULT_OFFSET | 1u << AT_RAW
        ) != 0
        self.rows.judges_message_id = self.rows.wanted & (
            1u << AT_MESSAGE_ID | 1u << AT_FAULT | 1u << AT_FAULT_OFFSET | 1u << AT_RAW
        ) != 0
        if start < 0 or self.rows.most_rows < 1 or self.rows.most_bytes < 1:
            raise ValueError("start must not be negative, and max_rows and max_bytes must be positive")
        # No column holds more.
        self.cursor.walk.limit = min(self.cursor.walk.limit, <int64_t>INT32_MAX)
        self.cursor.at = self.origin = self.stop = start
        if data is not None:
            acquire(data, &self.view, "data")
            self.has_view = self.closed = True
            self.origin, self.stop = 0, self.view.len
            if start > self.stop:
                raise ValueError(f"start is {start}, behind the end of the data at {self.stop}")
        return 0

    def __dealloc__(self):
        cdef int number
        PyMem_RawFree(self.rows.marks.data)
        for number in range(COLUMN_COUNT):
            give_back(self.rows.columns[number].fixed)
            give_back(self.rows.columns[number].text)
        self.let_go()

    cdef void let_go(self) noexcept:
        if self.has_view:
            PyBuffer_Release(&self.view)
            self.has_view = False
            self.origin = self.stop = self.cursor.at

    def reset(self):
        raise TypeError("a _ColumnDecoder is for one input")

    @cython.critical_section
    def __next__(self):
        cdef const unsigned char *data
        cdef int64_t pause
        cdef Found found
        self.enter()
        try:
            data = self.buffer
            if self.has_view:
                data = <const unsigned char *>self.view.buf
            self.get_blocks()
            pause = first_pause(&self.cursor, self.stop)
            while self.fault is None:
                with nogil:
                    found = fill_rows(
                        &self.rows,
                        &self.cursor,
                        data,
                        self.origin,
                        pause,
                        self.closed and pause == self.stop,
                        self.end,
                    )
                if not self.is_done() and is_paused(found, &pause, self.stop):
                    continue
                if found == NO_MEMORY:
                    raise MemoryError
                if found == DAMAGE:
                    head = b"" if self.head is None else bytes(self.head)
                    found = put_damage(&self.rows, damage_at(&self.cursor, data, self.origin, head))
                    if found == DAMAGE:
                        self.head = None
                        take(&self.cursor, found)
                        continue
                if found == FULL:
                    return self.give_batch()
                if found == FAULT:
                    self.fault = error_at(&self.cursor, data, self.origin, self.stop)
                    self.drop_buffer()
                elif not self.closed and not self.is_done():
                    raise StopIteration
                break
            if self.rows.count:
                return self.give_batch()
            self.let_go()
            if self.fault is not None:
                raise again(self.fault)
            raise StopIteration
        finally:
            self.busy = False

    cdef bint is_done(self) noexcept:
        return self.cursor.state == FRAMES and self.cursor.at >= self.end

    cdef int get_blocks(self) except -1:
        """Get blocks for a batch like the one before."""
        cdef Column *column
        cdef int64_t fixed, text
        for number in self.wanted:
            column = &self.rows.columns[<int>number]
            with SPARE_LOCK:
                fixed, text = FIXED_BEFORE[<int>number], TEXT_BEFORE[<int>number]
            if column.fixed.data == NULL:
                column.fixed = take_block(max(fixed, <int64_t>FIRST_FIXED))
            if column.text.data == NULL and not is_number(number):
                column.text = take_block(max(text, <int64_t>FIRST_TEXT))
        return 0

    cdef tuple give_batch(self):
        """Give the rows away; where there is no memory for that, they stay."""
        cdef list columns = []
        cdef int place
        for number in self.wanted:
            columns.append(self.outline(number))
        batch = (self.rows.count, columns)
        # From here on nothing takes memory.
        for place in range(len(columns)):
            self.fill(self.wanted[place], <list>(<tuple>columns[place])[1])
        self.rows.count = self.rows.capacity = self.rows.room = 0
        return batch

    cdef tuple outline(self, int number):
        """How many nulls there are in a column, and its buffers in Arrow's order, not filled yet but for the bits,
        which are None where all are set."""
        cdef Column *column = &self.rows.columns[number]
        cdef int64_t count = self.rows.count
        if column.filled == 0:
            zeros = self.some_zeros((count + 1) * sizeof(int64_t))
            return count, [zeros, zeros] if is_number(number) else [zeros, zeros, b""]
        pad(column, count)
        bits = bits_of(&self.rows, number) if column.nulls else None
        if is_number(number):
            return column.nulls, [bits, memory_for(count * sizeof(int64_t))]
        return column.nulls, [bits, memory_for((count + 1) * sizeof(int32_t)), memory_for(column.size)]

    cdef void fill(self, int number, list buffers) noexcept:
        """Give the blocks of a column away to these buffers."""
        cdef Column *column = &self.rows.columns[number]
        if column.filled == 0:
            return
        with SPARE_LOCK:
            FIXED_BEFORE[number], TEXT_BEFORE[number] = column.fixed.size, column.text.size
        give_away(&column.fixed, <_Memory>buffers[1])
        if not is_number(number):
            give_away(&column.text, <_Memory>buffers[2])
        column.numbers, column.ends = NULL, NULL
        column.size = column.filled = column.nulls = 0

    cdef _Memory some_zeros(self, int64_t size):
        cdef _Memory zeros
        if self.zeros is None or self.zeros.size < size:
            zeros = memory_for(size)
            zeros.block.data = <char *>PyMem_RawCalloc(<size_t>size, 1)
            if zeros.block.data == NULL:
                raise MemoryError
            zeros.block.size = size
            self.zeros = zeros
        return self.zeros


cdef Found fill_rows(
    Rows *rows, Cursor *cursor, const unsigned char *data, int64_t origin, int64_t stop, bint final, int64_t end
) noexcept nogil:
    """Put all whole messages up to the boundary `end` into the rows; say what stands behind them."""
    cdef Found found
    while cursor.state != FRAMES or cursor.at < end:
        found = find_next(cursor, data, origin, stop, final)
        if found == ITEM:
            read_ahead(cursor, data, origin, stop)
            found = put_message(
                rows, &cursor.walk, data + (cursor.at - origin), cursor.at, data + (stop - origin)
            )
        if found != ITEM:
            return found
        take(cursor, found)
    return NOTHING


def _decode_columns(
    data,
    columns,
    *,
    start=0,
    stop=None,
    packet_header_size=DEFAULT_PACKET_HEADER_SIZE,
    max_frame_size=DEFAULT_MAX_FRAME_SIZE,
    on_fault="raise",
    max_rows,
    max_bytes,
):
    """Decode messages and damages to batches of rows, as buffers of Arrow.

    Args:
        data: the whole input, any C-contiguous buffer, which stays exported until all is read; or None, to feed it.
        columns: names of `COLUMNS`, each once.
        start: where to begin, in bytes: in the data, or for input that is fed the offset of its first byte.
        stop: reading ends at the first boundary at or behind it; None for the end of the input.
        packet_header_size, max_frame_size, on_fault: as `Decoder` takes them; no frame can have more than 2**31-1
            bytes.
        max_rows, max_bytes: a batch ends before the row that would make it larger than one of them. A number counts
            as 8 bytes, a text as 4 and its length.

    Returns:
        An iterator that is fed and closed as a `Decoder` is. It gives for each batch how many rows it has, and for
        each column how many of them are null and its buffers: [bits, numbers], or [bits, ends, texts], where bits
        are None if nothing is null. What has come of a batch is kept until it is full or the input has ended.
    """
    cdef _ColumnDecoder decoder = _ColumnDecoder(
        packet_header_size=packet_header_size, max_frame_size=max_frame_size, on_fault=on_fault
    )
    decoder.rows.most_rows = max_rows
    decoder.rows.most_bytes = max_bytes
    decoder.open(data, columns, start, stop)
    return decoder


def _find_frame(
    data, start, *, packet_header_size=DEFAULT_PACKET_HEADER_SIZE, max_frame_size=DEFAULT_MAX_FRAME_SIZE
):
    """Find the first place from `start` on where a whole valid message begins; the end of the data if there is none.

    This is where recovery ends that began before it (docs/protocol.md, section 4, "Recovery").
    """
    cdef Cursor cursor
    cdef Py_buffer view
    cdef int64_t place = start
    cdef int64_t pause
    cdef Found found
    set_up(&cursor, True, packet_header_size, max_frame_size, "skip")
    acquire(data, &view, "data")
    try:
        cursor.state = SEARCH
        cursor.at = cursor.damage_start = min(max(place, 0), view.len)
        pause = first_pause(&cursor, view.len)
        while True:
            with nogil:
                found = look_closer(&cursor, <const unsigned char *>view.buf, 0, pause, pause == view.len)
            if not is_paused(found, &pause, view.len):
                return cursor.at
    finally:
        PyBuffer_Release(&view)


# --- Columns: encoding -------------------------------------------------------------------------------

cdef struct Text:
    const unsigned char *data
    int64_t size

# A column to read.
cdef struct Given:
    const unsigned char *bits   # NULL where nothing is null
    const int64_t *numbers
    const int32_t *ends
    const unsigned char *text
    int64_t first               # the row where it begins

cdef class _Givens:
    """The columns of a batch, their buffers held."""

    cdef Given[COLUMN_COUNT] columns
    cdef unsigned int there
    cdef Py_buffer[3 * COLUMN_COUNT] views
    cdef int count

    cdef int add(self, int number, int64_t first, list buffers) except -1:
        cdef Given *column = &self.columns[number]
        cdef const void *memory[3]
        cdef int place
        for place in range(len(buffers)):
            memory[place] = NULL
            if buffers[place] is not None:
                acquire(buffers[place], &self.views[self.count], "buffer")
                memory[place] = self.views[self.count].buf
                self.count += 1
        column.first = first
        column.bits = <const unsigned char *>memory[0]
        if is_number(number):
            column.numbers = <const int64_t *>memory[1]
        else:
            column.ends = <const int32_t *>memory[1]
            # Arrow may leave out an empty block, and nothing may be copied from NULL, not even no bytes.
            column.text = <const unsigned char *>memory[2]
            if column.text == NULL:
                column.text = <const unsigned char *>LOST_TEXT
        self.there |= 1u << number
        return 0

    def __dealloc__(self):
        while self.count:
            self.count -= 1
            PyBuffer_Release(&self.views[self.count])

    cdef unsigned int present(self, int64_t row) noexcept nogil:
        """The columns that are not null in this row, as a bit set."""
        cdef unsigned int present = 0
        cdef const Given *column
        cdef int64_t place
        cdef int number
        for number in range(COLUMN_COUNT):
            if self.there >> number & 1:
                column = &self.columns[number]
                place = column.first + row
                if column.bits == NULL or column.bits[place / 8] >> (place % 8) & 1:
                    present |= 1u << number
        return present

    cdef int64_t number(self, int number, int64_t row) noexcept nogil:
        return self.columns[number].numbers[self.columns[number].first + row]

    cdef Text text(self, int number, int64_t row) noexcept nogil:
        cdef const Given *column = &self.columns[number]
        cdef int32_t start = column.ends[column.first + row]
        cdef Text text
        text.data = column.text + start
        text.size = column.ends[column.first + row + 1] - start
        return text


cdef inline bint is_named(Text text, const char *name, int size) noexcept nogil:
    return text.size == size and memcmp(text.data, name, size) == 0


cdef int kind_named(Text word) noexcept nogil:
    """The kind that the column `type` calls so, or 0."""
    cdef int kind
    for kind in range(1, KINDS):
        if is_named(word, KIND_WORDS[kind], KIND_WORD_SIZES[kind]):
            return kind
    return 0


cdef struct Form:
    int type
    int count

# The message type and the packet count of a message of some kind with these fields: of the columns from `queue` to
# `count` those that are not null, as a bit set. No packets where there is no such form.
cdef Form[KINDS][32] FORMS_BY_FIELDS


cdef int fill_forms_by_fields() except -1:
    cdef int kind, fields
    for kind in range(1, KINDS):
        for (type, count), form in CATALOGUE.items():
            if form.message == MESSAGE_CLASSES[kind].__name__:
                fields = FORM_COLUMNS[<int>type][<int>count] >> AT_QUEUE & 31
                FORMS_BY_FIELDS[kind][fields].type = type
                FORMS_BY_FIELDS[kind][fields].count = count
    return 0


fill_forms_by_fields()


cdef int64_t row_size(_Givens givens, int64_t row, Walk *walk) noexcept nogil:
    """The bytes of the frame of a row; -1 if the row is no message."""
    cdef unsigned int present = givens.present(row)
    cdef int64_t number, size
    cdef Text raw
    cdef int column, kind, count
    if present >> AT_FAULT & 1:
        if not (present >> AT_RAW & 1 and is_named(givens.text(AT_FAULT, row), LOST_TEXT, LOST_TEXT_SIZE)):
            return -1
        raw = givens.text(AT_RAW, row)
        begin(walk, True)
        return raw.size if walk_on(walk, raw.data, raw.size) == WHOLE and walk.at == raw.size else -1
    kind = kind_named(givens.text(AT_TYPE, row)) if present >> AT_TYPE & 1 else 0
    count = FORMS_BY_FIELDS[kind][present >> AT_QUEUE & 31].count
    if count == 0:
        return -1
    size = HEADER + count * walk.header_size
    for column in range(AT_QUEUE, AT_COUNT + 1):
        if not present >> column & 1:
            continue
        if is_number(column):
            number = givens.number(column, row)
            if number < 0:
                return -1
            size += digit_count(number)
        else:
            size += givens.text(column, row).size
    return size


cdef char *write_row(_Givens givens, int64_t row, int header_size, char *out) noexcept nogil:
    """Write the frame of a row that is a message."""
    cdef unsigned int present = givens.present(row)
    cdef char[20] digits
    cdef Form form
    cdef Text text
    cdef int column
    if present >> AT_FAULT & 1:
        text = givens.text(AT_RAW, row)
        memcpy(out, text.data, <size_t>text.size)
        return out + text.size
    form = FORMS_BY_FIELDS[kind_named(givens.text(AT_TYPE, row))][present >> AT_QUEUE & 31]
    out = write_message_header(out, form.type, form.count)
    for column in range(AT_QUEUE, AT_COUNT + 1):
        if not present >> column & 1:
            continue
        if is_number(column):
            text.data = <const unsigned char *>digits
            text.size = write_digits(digits, givens.number(column, row))
        else:
            text = givens.text(column, row)
        out = write_packet_header(out, header_size, PACKET_TYPES[column - AT_QUEUE], text.size)
        memcpy(out, text.data, <size_t>text.size)
        out += text.size
    return out


def _encode_columns(rows, columns, *, packet_header_size=DEFAULT_PACKET_HEADER_SIZE):
    """Encode rows of messages, as `_decode_columns` gives them, one after another.

    Args:
        rows: how many there are.
        columns: by name, the row where a column begins in its buffers, and these in Arrow's order; `type` and `queue`
            have to be there, and the buffers have to be valid and stay as they are.
        packet_header_size: 32, 35 or 36 bytes.

    Returns:
        The frames; or the number of the first row that is no message.
    """
    cdef _Givens givens = _Givens.__new__(_Givens)
    cdef Cursor cursor
    cdef int64_t count = rows
    cdef int64_t row, size
    cdef int64_t total = 0
    cdef bytes frames
    cdef char *out
    set_up(&cursor, True, packet_header_size, None, "raise")
    for name, (first, buffers) in columns.items():
        givens.add(COLUMN_NUMBERS[name], first, buffers)
    with nogil:
        for row in range(count):
            size = row_size(givens, row, &cursor.walk)
            if size < 0:
                break
            total += size
        else:
            row = count
    if row < count:
        return row
    frames = PyBytes_FromStringAndSize(NULL, total)
    out = PyBytes_AS_STRING(frames)
    with nogil:
        for row in range(count):
            out = write_row(givens, row, cursor.walk.header_size, out)
    return frames
