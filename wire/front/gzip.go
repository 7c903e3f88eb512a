package front

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/rpc"
)

// gunzip expands a message up to limit bytes. The caller recycles the result.
func gunzip(p []byte, limit int64) ([]byte, *rpc.Status) {
	z := expanders.Get().(*expander)
	defer expanders.Put(z)
	z.src.Reset(p)
	defer z.src.Reset(nil)
	if err := z.gz.Reset(&z.src); err != nil {
		return nil, badGzip(err)
	}
	out := conn.Grow(nil, conn.Small)
	for {
		if len(out) == cap(out) {
			out = double(out, limit+1)
		}
		n, err := z.gz.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		switch {
		case int64(len(out)) > limit:
			conn.Recycle(out)
			return nil, tooLarge(limit)
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			conn.Recycle(out)
			return nil, badGzip(err)
		}
	}
}

// double is grow for output that will have most bytes at most.
func double(b []byte, most int64) []byte {
	if room := 2 * int64(cap(b)); room <= conn.Large || room <= most {
		return conn.Grow(b, cap(b))
	}
	return append(make([]byte, 0, most), b...) // the last step
}

func badGzip(err error) *rpc.Status {
	return &rpc.Status{Code: codes.Internal, Message: "gzip: " + err.Error()}
}

// An expander is a gzip reader with its source.
type expander struct {
	gz  gzip.Reader
	src bytes.Reader
}

var expanders = sync.Pool{New: func() any { return new(expander) }}
