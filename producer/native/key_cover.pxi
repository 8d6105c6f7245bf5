# Which changes of a table under snapshot are written: spans of integer keys, each with a decision.

cdef enum:
    EMITTED = 0
    SKIPPED = 1
    UNDECIDED = 2
    OF_TRANSACTION = 3  # of a committed split: one decision for each transaction

cdef int64_t LEAST_KEY = -9223372036854775807 - 1


@cython.final
cdef class KeyCover:
    """The spans of a table; it does not change, another one is made when the table's splits do."""

    cdef int64_t *starts
    cdef signed char *decisions
    cdef signed char *found  # the decisions for ``begin``; -1: not asked for
    cdef Py_ssize_t count
    cdef list splits
    cdef object decide
    cdef object begin

    def __cinit__(self, list starts not None, list spans not None, decide):
        cdef Py_ssize_t i
        if not starts or len(starts) != len(spans) or starts[0] != LEAST_KEY:
            raise ValueError("the spans do not cover all keys")
        self.decide, self.count, self.splits = decide, len(starts), []
        self.starts = <int64_t *> PyMem_Calloc(self.count, sizeof(int64_t))
        self.decisions = <signed char *> PyMem_Calloc(self.count, 1)
        self.found = <signed char *> PyMem_Calloc(self.count, 1)
        if self.starts == NULL or self.decisions == NULL or self.found == NULL:
            raise MemoryError()
        for i in range(self.count):
            self.starts[i] = starts[i]
            if i and self.starts[i] <= self.starts[i - 1]:
                raise ValueError("the spans are not in order")
            span = spans[i]
            if isinstance(span, int):
                if not EMITTED <= span <= UNDECIDED:
                    raise ValueError("another decision")
                self.decisions[i], span = span, None
            else:
                self.decisions[i] = OF_TRANSACTION
            self.splits.append(span)

    def __dealloc__(self):
        PyMem_Free(self.starts)
        PyMem_Free(self.decisions)
        PyMem_Free(self.found)

    def decision(self, int64_t key, begin):
        """Return the decision on a change of a key."""
        return self.of(key, begin)

    cdef int of(self, int64_t key, begin) except -1:
        """Return the decision on a change of a key in a transaction."""
        cdef Py_ssize_t low = 0, high = self.count, middle
        while high - low > 1:
            middle = (low + high) // 2
            if self.starts[middle] <= key:
                low = middle
            else:
                high = middle
        if self.decisions[low] != OF_TRANSACTION:
            return self.decisions[low]
        if begin is not self.begin:
            for middle in range(self.count):
                self.found[middle] = -1
            self.begin = begin
        if self.found[low] < 0:
            middle = self.decide(self.splits[low], begin)
            if not EMITTED <= middle <= UNDECIDED:
                raise ValueError("another decision")
            self.found[low] = <signed char> middle
        return self.found[low]
