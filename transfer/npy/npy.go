// Package npy reads and writes the first bytes of .npy files, which say what array the rest of the file is. The rest is
// the elements themselves, in the order and form in which JAX has them in memory of a host, so no process has to convert
// them.
//
// [Read] checks a file before its elements are used: a file that is cut, or whose elements JAX would take for others, is
// an error. [Header.Append] is for files to write.
package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// A Header says what array a file has.
type Header struct {
	Type  string // of elements, as numpy writes it: "<f4"
	Shape []int
}

const (
	magic     = "\x93NUMPY"
	alignment = 64      // of the elements in a file
	maxHeader = 1 << 16 // bytes
)

var (
	// ErrFormat says that a file is no .npy file, or one that is damaged.
	ErrFormat = errors.New("not an .npy file")
	// ErrElements says that JAX would not understand the elements.
	ErrElements = errors.New("elements that cannot be moved as they are")
)

// dictionary is the text of a header, with the keys in the order in which numpy writes them.
var dictionary = regexp.MustCompile(`^\{'descr': '([^']*)', 'fortran_order': (False|True), 'shape': \(([0-9, ]*)\), \}\s*$`)

// elementType is the type of one element: its byte order, kind and width.
var elementType = regexp.MustCompile(`^([<>|=])([biufcV])([0-9]{1,4})$`)

// Width is how many bytes an element has.
func (h Header) Width() (int, error) {
	m := elementType.FindStringSubmatch(h.Type)
	if m == nil {
		return 0, fmt.Errorf("%w: type %.100q", ErrElements, h.Type)
	}
	width, _ := strconv.Atoi(m[3])
	switch {
	case width == 0:
		return 0, fmt.Errorf("%w: type %q has no bytes", ErrElements, h.Type)
	case m[1] == ">" && width > 1:
		return 0, fmt.Errorf("%w: type %q has the greatest byte first; to fix it, save array.astype(array.dtype.newbyteorder('<'))", ErrElements, h.Type)
	}
	return width, nil
}

// Bytes is how many bytes all elements have.
func (h Header) Bytes() (int64, error) {
	width, err := h.Width()
	if err != nil {
		return 0, err
	}
	total := int64(width)
	for _, n := range h.Shape {
		if n < 0 || n > 0 && total > math.MaxInt64/int64(n) {
			return 0, fmt.Errorf("%w: shape %v", ErrFormat, h.Shape)
		}
		total *= int64(n)
	}
	return total, nil
}

// Append appends the bytes that stand before the elements, a multiple of 64.
func (h Header) Append(out []byte) []byte {
	sizes := make([]string, len(h.Shape))
	for i, n := range h.Shape {
		sizes[i] = strconv.Itoa(n)
	}
	shape := strings.Join(sizes, ", ")
	if len(sizes) == 1 {
		shape += ","
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", h.Type, shape)
	const before = len(magic) + 4
	pad := alignment - (before+len(text)+1)%alignment
	text += strings.Repeat(" ", pad%alignment) + "\n"
	out = append(out, magic+"\x01\x00"...)
	out = binary.LittleEndian.AppendUint16(out, uint16(len(text)))
	return append(out, text...)
}

// Read reads the header of a file of this size. The elements begin at offset.
func Read(r io.ReaderAt, size int64) (h Header, offset int64, err error) {
	text, offset, err := readText(r)
	if err != nil {
		return h, 0, err
	}
	m := dictionary.FindStringSubmatch(text)
	if m == nil {
		return h, 0, fmt.Errorf("%w: a header like %.100q", ErrElements, text)
	}
	if m[2] == "True" {
		return h, 0, fmt.Errorf("%w: the first index runs fastest; to fix it, save numpy.ascontiguousarray(array)", ErrElements)
	}
	h.Type = m[1]
	for part := range strings.SplitSeq(m[3], ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil {
			return h, 0, fmt.Errorf("%w: shape (%s)", ErrFormat, m[3])
		}
		h.Shape = append(h.Shape, n)
	}
	bytes, err := h.Bytes()
	if err == nil && bytes > size-offset {
		err = fmt.Errorf("%w: %d bytes of elements, and the file has %d", ErrFormat, bytes, size-offset)
	}
	return h, offset, err
}

// readText reads the text of a header.
func readText(r io.ReaderAt) (text string, offset int64, err error) {
	var first [12]byte
	n, err := r.ReadAt(first[:], 0)
	if n < len(first) {
		return "", 0, fmt.Errorf("%w: %d bytes: %w", ErrFormat, n, err)
	}
	if string(first[:6]) != magic {
		return "", 0, ErrFormat
	}
	length := int64(binary.LittleEndian.Uint16(first[8:]))
	switch offset = 10; first[6] {
	case 1:
	case 2, 3:
		length, offset = int64(binary.LittleEndian.Uint32(first[8:])), 12
	default:
		return "", 0, fmt.Errorf("%w: version %d", ErrFormat, first[6])
	}
	if length > maxHeader {
		return "", 0, fmt.Errorf("%w: a header of %d bytes", ErrFormat, length)
	}
	all := make([]byte, length)
	if n, err := r.ReadAt(all, offset); int64(n) < length {
		return "", 0, fmt.Errorf("%w: its header is cut: %w", ErrFormat, err)
	}
	return string(all), offset + length, nil
}
