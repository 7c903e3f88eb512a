package replay

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
)

// A call is what passed on one stream.
type call struct {
	stream  uint32
	method  string
	http    string // status of the reply
	code    codes.Code
	message string
	details string
	body    []byte
	reset   string // "by client", "by server", or empty
	ended   bool   // by the server
	limited bool   // the client has set a deadline
}

// transcript reads both directions of a connection and tells how each call ended, in the order in
// which they began.
func transcript(t *testing.T, conn int, sent, received []byte) (lines []string) {
	t.Helper()
	calls := make(map[uint32]*call)
	of := func(id uint32) *call {
		if calls[id] == nil {
			calls[id] = &call{stream: id}
		}
		return calls[id]
	}
	if !bytes.HasPrefix(sent, []byte(http2.ClientPreface)) {
		t.Fatalf("connection %d does not begin with the preface", conn)
	}
	frames(t, sent[len(http2.ClientPreface):], func(f http2.Frame) {
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if p := f.PseudoValue("path"); p != "" {
				of(f.StreamID).method = p
			}
			for _, h := range f.Fields {
				if h.Name == "grpc-timeout" {
					of(f.StreamID).limited = true
				}
			}
		case *http2.RSTStreamFrame:
			of(f.StreamID).reset = "by client"
		}
	})
	frames(t, received, func(f http2.Frame) {
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			of(f.StreamID).fields(t, f)
		case *http2.DataFrame:
			c := of(f.StreamID)
			c.body = append(c.body, f.Data()...)
		case *http2.RSTStreamFrame:
			if c := of(f.StreamID); !c.ended {
				c.reset = "by server, " + f.ErrCode.String()
			}
		case *http2.GoAwayFrame:
			lines = append(lines, fmt.Sprintf("%d: GOAWAY %v", conn, f.ErrCode))
		}
	})
	all := slices.SortedFunc(func(yield func(*call) bool) {
		for _, c := range calls {
			if !yield(c) {
				return
			}
		}
	}, func(a, b *call) int { return cmp.Compare(a.stream, b.stream) })
	for _, c := range all {
		lines = append(lines, fmt.Sprintf("%d/%d %s", conn, c.stream, c))
	}
	return lines
}

// frames reads the frames of one direction; the last may be cut.
func frames(t *testing.T, b []byte, each func(http2.Frame)) {
	t.Helper()
	fr := http2.NewFramer(nil, bytes.NewReader(b))
	fr.SetMaxReadFrameSize(1 << 24)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := fr.ReadFrame()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return
		case err != nil:
			t.Fatalf("frames: %v", err)
		}
		each(f)
	}
}

func (c *call) fields(t *testing.T, f *http2.MetaHeadersFrame) {
	t.Helper()
	c.ended = c.ended || f.StreamEnded()
	for _, h := range f.Fields {
		var err error
		switch h.Name {
		case ":status":
			c.http = h.Value
		case "grpc-status":
			var n int
			n, err = strconv.Atoi(h.Value)
			c.code = codes.Code(n)
		case "grpc-message":
			c.message, err = url.PathUnescape(h.Value)
		case "grpc-status-details-bin":
			var b []byte
			b, err = base64.RawStdEncoding.DecodeString(h.Value)
			c.details = string(b)
		}
		if err != nil {
			t.Errorf("stream %d: %s %q: %v", c.stream, h.Name, h.Value, err)
		}
	}
}

// late says whether the call ended because its deadline passed. The service's own timeouts come with
// details. grpc-go resets the stream at that moment, and its answer may or may not come before.
func (c *call) late() bool {
	return c.limited && (c.reset == "by server, CANCEL" || c.code == codes.DeadlineExceeded && c.details == "")
}

func (c *call) String() string {
	name := path.Base(c.method)
	switch {
	case c.late():
		return name + ": its deadline passed"
	case c.reset != "":
		return fmt.Sprintf("%s: reset %s", name, c.reset)
	case !c.ended:
		return name + ": open"
	case c.http != "200":
		return fmt.Sprintf("%s: HTTP %s", name, c.http)
	case c.code != codes.OK:
		return fmt.Sprintf("%s: %v %q %s", name, c.code, c.message, show([]byte(c.details)))
	}
	return fmt.Sprintf("%s: %s", name, show(c.body[min(len(c.body), prefixLen):]))
}

const prefixLen = 5 // before a message: compressed or not, and its length

// show prints what is short, and a digest of what is not.
func show(b []byte) string {
	if len(b) > 256 {
		return fmt.Sprintf("%d bytes, sha256 %x", len(b), sha256.Sum256(b))
	}
	return fmt.Sprintf("%q", b)
}
