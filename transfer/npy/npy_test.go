package npy_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer/npy"
)

// file is a file with this header and so many bytes of elements.
func file(header string, elements int) []byte {
	text := header + "\n"
	return append([]byte("\x93NUMPY\x01\x00"+string([]byte{byte(len(text)), byte(len(text) >> 8)})+text), make([]byte, elements)...)
}

func TestHeader(t *testing.T) {
	clause.Cite(t, "TR-G-31")
	for _, h := range []npy.Header{
		{Type: "<f4", Shape: []int{3, 4}},
		{Type: "|u1", Shape: []int{5_000_003}},
		{Type: "<c16"},
		{Type: "<V2", Shape: []int{0, 7, 1}},
	} {
		data := h.Append(nil)
		if len(data)%64 != 0 {
			t.Errorf("Append(%v) has %d bytes; want a multiple of 64", h, len(data))
		}
		bytesAfter, err := h.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		size := int64(len(data)) + bytesAfter
		got, offset, err := npy.Read(bytes.NewReader(data), size)
		if diff := cmp.Diff(h, got); err != nil || offset != int64(len(data)) || diff != "" {
			t.Errorf("Read(Append(%v)) = %d, %v, -want +got:\n%s", h, offset, err, diff)
		}
		if bytesAfter == 0 {
			continue
		}
		if _, _, err := npy.Read(bytes.NewReader(data), size-1); !errors.Is(err, npy.ErrFormat) {
			t.Errorf("Read(a file that is cut) = %v; want %v", err, npy.ErrFormat)
		}
	}
}

func TestBadFiles(t *testing.T) {
	clause.Cite(t, "TR-G-31")
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"empty":               {nil, npy.ErrFormat},
		"another file":        {[]byte(strings.Repeat("no ", 100)), npy.ErrFormat},
		"another version":     {[]byte("\x93NUMPY\x09\x00" + strings.Repeat(" ", 100)), npy.ErrFormat},
		"a long header":       {[]byte("\x93NUMPY\x02\x00\xff\xff\xff\x7f" + strings.Repeat(" ", 100)), npy.ErrFormat},
		"a header cut":        {file("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 4)[:30], npy.ErrFormat},
		"objects":             {file("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", 8), npy.ErrElements},
		"records":             {file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4), npy.ErrElements},
		"greatest byte first": {file("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", 4), npy.ErrElements},
		"columns first":       {file("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1), }", 4), npy.ErrElements},
		"no bytes":            {file("{'descr': '|V0', 'fortran_order': False, 'shape': (1,), }", 4), npy.ErrElements},
		"more than all bytes": {file("{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 9223372036854775807), }", 8), npy.ErrFormat},
		"no number":           {file("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,), }", 8), npy.ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			if h, _, err := npy.Read(bytes.NewReader(c.data), int64(len(c.data))); !errors.Is(err, c.want) {
				t.Errorf("Read() = %v, %v; want %v", h, err, c.want)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add(npy.Header{Type: "<f4", Shape: []int{3, 4}}.Append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, offset, err := npy.Read(bytes.NewReader(data), 1<<40)
		if err != nil {
			return
		}
		again, _, err := npy.Read(bytes.NewReader(h.Append(nil)), 1<<41)
		if diff := cmp.Diff(h, again); err != nil || diff != "" || offset < 10 {
			t.Fatalf("Read(Append(%v)) = %v, at %d:\n%s", h, err, offset, diff)
		}
	})
}

func ExampleHeader_Append() {
	data := npy.Header{Type: "<f4", Shape: []int{3, 4}}.Append(nil)
	fmt.Printf("%q\n", strings.TrimSpace(string(data[10:])))
	// Output: "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"
}
