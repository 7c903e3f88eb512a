package back

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"sync"
)

// pack compresses a request if the connection does that and it gets smaller by it.
func (c *Conn) pack(request []byte) message {
	if !c.gzip || len(request) == 0 {
		return message{body: request}
	}
	var b bytes.Buffer
	z := zippers.Get().(*gzip.Writer)
	defer zippers.Put(z)
	z.Reset(&b)
	z.Write(request) // to memory
	z.Close()
	if b.Len() >= len(request) {
		return message{body: request}
	}
	return message{compressed: true, body: b.Bytes()}
}

// zippers are large, and used again.
var zippers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// decompress undoes what a server did to a reply.
func decompress(b []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(z, MaxMessageBytes+1))
	if err == nil && len(plain) > MaxMessageBytes {
		err = fmt.Errorf("%w: over %d bytes", ErrTooLarge, MaxMessageBytes)
	}
	return plain, err
}
