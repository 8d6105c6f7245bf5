# Records: the keys and values of many records in one buffer, without an object for each.

cdef struct Place:
    Py_ssize_t key
    Py_ssize_t value  # the key ends here
    Py_ssize_t end  # of the value; -1: there is none


@cython.final
cdef class Records:
    """A sequence of (key, value) that only grows; its items are made when they are read."""

    cdef Output data
    cdef Place *places
    cdef Py_ssize_t count
    cdef Py_ssize_t room
    cdef bint held  # the buffer is in flight, and does not change any more

    def __dealloc__(self):
        self.release()
        PyMem_Free(self.places)

    cdef void release(self) noexcept:
        """Give the buffer away, to the messages that are in flight if there are any."""
        if self.held:
            drop(self.data.data)
        else:
            free(self.data.data)
        self.data.data, self.data.size, self.data.room = NULL, 0, 0
        self.count, self.held = 0, False

    cdef bint hold_for(self, const void *client, Py_ssize_t messages, int64_t left) except -1:
        """Return whether a client may read values in place; each of so many messages then calls ``answered``."""
        if not self.held and self.data.room - self.data.size > self.data.size // 16:
            make_room(&self.data, self.data.size + 1)
        if not hold(self.data.data, self.data.room, client, messages, left):
            return False
        self.held = True
        return True

    cdef int add(
        self, const unsigned char *key, Py_ssize_t key_size, const unsigned char *value, Py_ssize_t value_size
    ) except -1:
        """Append a record; a negative size: it has no value."""
        cdef Place *places
        cdef Py_ssize_t room
        if self.held:
            raise ValueError("records in flight do not grow")
        if self.count == self.room:
            room = self.room * 2 if self.room else 4
            places = <Place *> PyMem_Realloc(self.places, room * sizeof(Place))
            if places == NULL:
                raise MemoryError()
            self.places, self.room = places, room
        # At least one byte: an empty key is not the same as none.
        reserve(&self.data, key_size + (value_size if value_size > 0 else 0) + 1)
        places = &self.places[self.count]
        places.key = self.data.size
        put(&self.data, key, key_size)
        places.value = self.data.size
        if value_size < 0:
            places.end = -1
        else:
            put(&self.data, value, value_size)
            places.end = self.data.size
        self.count += 1
        return 0

    cdef tuple item(self, Py_ssize_t at):
        cdef Place *place = &self.places[at]
        cdef const char *data = <const char *> self.data.data
        key = PyBytes_FromStringAndSize(data + place.key, place.value - place.key)
        if place.end < 0:
            return key, None
        return key, PyBytes_FromStringAndSize(data + place.value, place.end - place.value)

    def extend(self, records):
        """Append (key, value) pairs."""
        cdef bytes key, value
        for key, value in records:
            if key is None:
                raise TypeError("a record without a key")
            if value is None:
                self.add(<const unsigned char *> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), NULL, -1)
            else:
                self.add(
                    <const unsigned char *> PyBytes_AS_STRING(key),
                    PyBytes_GET_SIZE(key),
                    <const unsigned char *> PyBytes_AS_STRING(value),
                    PyBytes_GET_SIZE(value),
                )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        cdef Py_ssize_t at
        if isinstance(index, slice):
            return list(self)[index]
        at = index
        if at < 0:
            at += self.count
        if not 0 <= at < self.count:
            raise IndexError(index)
        return self.item(at)

    def __iter__(self):
        return iter([self.item(at) for at in range(self.count)])

    def __eq__(self, other):
        return list(self) == list(other) if isinstance(other, (list, Records)) else NotImplemented

    def __repr__(self):
        return repr(list(self))
