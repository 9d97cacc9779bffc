# cython: language_level=3, embedsignature=True
"""Looks keys up in the pages of an LMDB file: without the interpreter's lock, and, where that is asked for, without
ever waiting for the disk.

Why: LMDB maps its file, so nobody can tell beforehand whether a lookup waits for the disk. Its binding takes the
interpreter's lock again behind each key, and beside a busy event loop each time may take milliseconds. Here pages are
read from the file: preadv2 with RWF_NOWAIT tells of each whether it is in memory. The lock is let go of once for all
keys. key_pages.py is the other end, and says which layouts there are.

Invariant: nothing is changed; a page that is not what leads to it says is an error, never a key that is not there.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint16_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <sys/types.h>
    #include <sys/uio.h>
    #include <unistd.h>
    static ssize_t samelog_read_page(int descriptor, void *page, size_t size, uint64_t offset, int waits) {
        if (waits)
            return pread(descriptor, page, size, (off_t)offset);
    #ifdef RWF_NOWAIT
        struct iovec whole = {page, size};
        return preadv2(descriptor, &whole, 1, (off_t)offset, RWF_NOWAIT);
    #else
        errno = EAGAIN;
        return -1;
    #endif
    }
    """
    ssize_t samelog_read_page(int descriptor, void *page, size_t size, uint64_t offset, int waits)

cdef enum:
    LEVELS = 32
    TYPES = 0x6F
    BRANCH = 1
    LEAF = 2
    NODE_BYTES = 8
    OFFSET_BYTES = 8
    LOADED = 0
    NOT_THERE = -1
    WAITS = -2
    BROKEN = -3
    FAILED = -4

cdef struct Tree:
    int descriptor
    int waits
    int error
    uint64_t root
    size_t page_bytes
    size_t header_bytes
    size_t base
    uint64_t numbers[32]
    unsigned char *pages


def look_up(int descriptor, uint64_t root, tuple layout, list keys, bint waits, Py_ssize_t patience):
    """The offsets of keys, in their order, by the root of their tree: -1 for a key that is not there, and -2 for one
    of which that cannot be told without waiting for the disk.

    `layout`: bytes of a page, of its header, and from where in it places count. `patience`: when so many cannot be
    told, all others are not looked at: asking for a page that is not in memory has the disk read it, which takes a
    while. Raises OSError, and ValueError if this is no such tree.
    """
    cdef Py_ssize_t count = len(keys), at
    cdef const unsigned char **names = <const unsigned char **>malloc((count + 1) * sizeof(void *))
    cdef size_t *sizes = <size_t *>malloc((count + 1) * sizeof(size_t))
    cdef int64_t *found = <int64_t *>malloc((count + 1) * sizeof(int64_t))
    cdef int64_t worst = 0
    cdef Tree tree
    cdef bytes key
    memset(&tree, 0, sizeof(Tree))
    try:
        tree.descriptor, tree.waits, tree.root = descriptor, waits, root
        tree.page_bytes, tree.header_bytes, tree.base = layout
        tree.pages = <unsigned char *>malloc(LEVELS * tree.page_bytes)
        if names == NULL or sizes == NULL or found == NULL or tree.pages == NULL:
            raise MemoryError
        for at in range(count):
            key = keys[at]
            if key is None:
                raise TypeError("a key is bytes")
            names[at] = <const unsigned char *>PyBytes_AS_STRING(key)
            sizes[at] = <size_t>PyBytes_GET_SIZE(key)
        with nogil:
            for at in range(count):
                found[at] = _find(&tree, names[at], sizes[at]) if patience > 0 else WAITS
                if found[at] == WAITS:
                    patience -= 1
                if found[at] < WAITS:
                    worst = found[at]
                    break
        if worst == FAILED:
            raise OSError(tree.error, "a page cannot be read")
        if worst == BROKEN:
            raise ValueError("a page is not what leads to it says")
        return [found[at] for at in range(count)]
    finally:
        free(names)
        free(sizes)
        free(found)
        free(tree.pages)


cdef int64_t _find(Tree *tree, const unsigned char *key, size_t size) noexcept nogil:
    """The offset of a key, or why there is none."""
    cdef uint64_t number = tree.root
    cdef const unsigned char *page
    cdef size_t lower, kind, count
    cdef int level, status
    for level in range(LEVELS):
        if number < 2:  # that is one of the two pages that say where trees begin
            return BROKEN
        status = _load(tree, level, number)
        if status != LOADED:
            return status
        page = tree.pages + level * tree.page_bytes
        kind = _short(page + tree.header_bytes - 6) & TYPES
        lower = _short(page + tree.header_bytes - 4) + tree.base
        if lower < tree.header_bytes + 2 or lower > tree.page_bytes:
            return BROKEN
        count = (lower - tree.header_bytes) >> 1
        if kind == LEAF:
            return _value(tree, page, count, key, size)
        if kind != BRANCH:
            return BROKEN
        number = _child(tree, page, count, key, size)
    return BROKEN


cdef int _load(Tree *tree, int level, uint64_t number) noexcept nogil:
    """Have a page in memory; the last one of its level may be it already."""
    cdef unsigned char *page = tree.pages + level * tree.page_bytes
    cdef ssize_t count
    if tree.numbers[level] == number:
        return LOADED
    tree.numbers[level] = 0
    while True:
        count = samelog_read_page(
            tree.descriptor, page, tree.page_bytes, number * tree.page_bytes, tree.waits
        )
        if count >= 0 or errno != EINTR:
            break
    if count == <ssize_t>tree.page_bytes and _long(page) == number:
        tree.numbers[level] = number
        return LOADED
    if not tree.waits:
        return WAITS
    if count < 0:
        tree.error = errno
        return FAILED
    return BROKEN


cdef uint64_t _child(
    Tree *tree, const unsigned char *page, size_t count, const unsigned char *key, size_t size
) noexcept nogil:
    """The page that a key is below; 0 if this one is broken. The first key of a branch counts for the smallest."""
    cdef size_t low = 0, high = count, middle
    cdef const unsigned char *node
    while high - low > 1:
        middle = (low + high) >> 1
        node = _node(tree, page, middle)
        if node == NULL:
            return 0
        if _order(key, size, node) >= 0:
            low = middle
        else:
            high = middle
    node = _node(tree, page, low)
    if node == NULL:
        return 0
    return _short(node) | (<uint64_t>_short(node + 2) << 16) | (<uint64_t>_short(node + 4) << 32)


cdef int64_t _value(
    Tree *tree, const unsigned char *page, size_t count, const unsigned char *key, size_t size
) noexcept nogil:
    """What a leaf has for a key."""
    cdef size_t low = 0, high = count, middle
    cdef const unsigned char *node
    cdef int order
    while low < high:
        middle = (low + high) >> 1
        node = _node(tree, page, middle)
        if node == NULL:
            return BROKEN
        order = _order(key, size, node)
        if order == 0:
            return _offset(tree, page, node, size)
        if order < 0:
            high = middle
        else:
            low = middle + 1
    return NOT_THERE


cdef int64_t _offset(
    Tree *tree, const unsigned char *page, const unsigned char *node, size_t size
) noexcept nogil:
    """The value of a node, which is one number, the highest byte first."""
    cdef const unsigned char *value = node + NODE_BYTES + size
    cdef uint64_t number = 0
    cdef int at
    if tree.base != 0:
        value += size & 1  # values begin at even places
    if _short(node) != OFFSET_BYTES or _short(node + 2) != 0 or _short(node + 4) != 0:
        return BROKEN
    if value + OFFSET_BYTES > page + tree.page_bytes or value[0] > 127:
        return BROKEN
    for at in range(OFFSET_BYTES):
        number = (number << 8) | value[at]
    return <int64_t>number


cdef const unsigned char *_node(Tree *tree, const unsigned char *page, size_t at) noexcept nogil:
    """One of the nodes of a page; NULL if it is not within."""
    cdef size_t place = _short(page + tree.header_bytes + 2 * at) + tree.base
    if place + NODE_BYTES > tree.page_bytes:
        return NULL
    if place + NODE_BYTES + _short(page + place + 6) > tree.page_bytes:
        return NULL
    return page + place


cdef int _order(const unsigned char *key, size_t size, const unsigned char *node) noexcept nogil:
    """How a key compares with a node's."""
    cdef size_t other = _short(node + 6)
    cdef int order = memcmp(key, node + NODE_BYTES, size if size < other else other)
    if order != 0 or size == other:
        return order
    return 1 if size > other else -1


cdef inline size_t _short(const unsigned char *place) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, place, sizeof(value))
    return value


cdef inline uint64_t _long(const unsigned char *place) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, place, sizeof(value))
    return value
