package back

import (
	"bytes"

	"golang.org/x/net/http2/hpack"

	"github.com/serry-dev/serry/wire/internal/h2"
)

// headers makes the header block of each call. The first call of a method puts its path into the
// table that both sides keep; from the second on its block is a few bytes, always the same ones,
// until another method moves the indices.
type headers struct {
	fixed  []hpack.HeaderField // without the path
	enc    *hpack.Encoder
	buf    bytes.Buffer
	seen   map[string]bool
	ready  map[string][]byte // blocks that hold while nothing enters or leaves the table
	used   uint32            // bytes of the table, were nothing ever dropped
	narrow bool              // the server's table is smaller than usual
}

func newHeaders(authority string, secure, gzip bool) *headers {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	h := &headers{
		fixed: []hpack.HeaderField{
			{Name: ":method", Value: "POST"},
			{Name: ":scheme", Value: scheme},
			{Name: ":authority", Value: authority},
			{Name: "content-type", Value: "application/grpc"},
			{Name: "te", Value: "trailers"},
			{Name: "user-agent", Value: "serry"},
		},
		seen:  make(map[string]bool),
		ready: make(map[string][]byte),
	}
	if gzip {
		h.fixed = append(h.fixed,
			hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"}, hpack.HeaderField{Name: "grpc-accept-encoding", Value: "gzip"})
	}
	h.enc = hpack.NewEncoder(&h.buf)
	for _, f := range h.fixed {
		h.used += f.Size() // a little too much: two of them are in the static table
	}
	return h
}

// block returns the header block of the next call of a method. It is valid until the next block,
// and must be sent in the order of the calls of block.
func (h *headers) block(path string) []byte {
	if b, ok := h.ready[path]; ok {
		return b
	}
	h.buf.Reset()
	h.enc.WriteField(hpack.HeaderField{Name: ":path", Value: path}) // writes to memory
	for _, f := range h.fixed {
		h.enc.WriteField(f)
	}
	switch {
	case !h.seen[path]:
		h.seen[path] = true
		h.used += hpack.HeaderField{Name: ":path", Value: path}.Size()
		clear(h.ready)
	case h.used <= h2.TableBytes && !h.narrow:
		h.ready[path] = bytes.Clone(h.buf.Bytes())
	}
	return h.buf.Bytes()
}

// limit obeys the server's limit on the size of the table.
func (h *headers) limit(bytes uint32) {
	h.enc.SetMaxDynamicTableSizeLimit(bytes)
	if bytes < h2.TableBytes {
		h.narrow = true
		clear(h.ready)
	}
}
