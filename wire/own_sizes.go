package wire

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/serrypb"
)

// A SizesQuery asks which keys there are below a directory and how large their values are. The
// values stay where they are: some are programs of hundreds of megabytes.
type SizesQuery struct{ Dir string }

// A KeySize is a key with the size of its value in bytes.
type KeySize struct {
	Key  string `json:"key"`
	Size int64  `json:"size"`
}

// Request is what asks for the sizes.
func (q SizesQuery) Request() (path string, body []byte, err error) {
	return ownPath(&serrypb.Request{Call: &serrypb.Request_List{List: &serrypb.List{Key: q.Dir, Sizes: true}}})
}

// ReadSizes reads the reply to a [SizesQuery], ascending by key.
func ReadSizes(body []byte) ([]KeySize, error) {
	p := new(serrypb.Reply)
	if err := proto.Unmarshal(body, p); err != nil {
		return nil, fmt.Errorf("reply of the server: %w", err)
	}
	if e := p.GetError(); e != nil {
		return nil, readOwnError(e)
	}
	sizes := make([]KeySize, 0, len(p.GetEntries().GetEntries()))
	for _, e := range p.GetEntries().GetEntries() {
		sizes = append(sizes, KeySize{e.GetKey(), max(e.GetSize(), int64(len(e.GetValue())))})
	}
	return sizes, nil
}

func ownSizes(entries []coord.Entry) *serrypb.Entries {
	m := new(serrypb.Entries)
	for _, e := range entries {
		m.Entries = append(m.Entries, &serrypb.Entry{Key: e.Key, Size: int64(len(e.Value))})
	}
	return m
}
