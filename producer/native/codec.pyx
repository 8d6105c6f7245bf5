# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Parses events of the binlog, encodes the rows of a table version, and hands records to Kafka's client: see codec.pyi.

What it declines, Python code parses or encodes, and the client's Python binding sends.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, strlen, strncpy

from zlib import crc32 as crc32_of_zlib

cdef extern from "Python.h":
    int PyUnicode_KIND(object text)
    int PyUnicode_1BYTE_KIND
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    void *PyUnicode_DATA(object text)
    const char *PyUnicode_AsUTF8(object text) except NULL
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    char *PyOS_double_to_string(double value, char form, int precision, int flags, int *kind) except NULL
    int Py_DTSF_ADD_DOT_0
    PyObject *PyDict_GetItemWithError(object mapping, object key) except? NULL

INTERFACE = 15

include "heap.pxi"
include "numbers.pxi"
include "values.pxi"
include "output.pxi"
include "checksum.pxi"
include "packets.pxi"
include "threads.pxi"
include "in_flight.pxi"
include "records.pxi"
include "result_set.pxi"
include "row_image.pxi"
include "binary_json.pxi"
include "rows.pxi"
include "key_cover.pxi"
include "events.pxi"
include "sender.pxi"
include "emitter.pxi"
