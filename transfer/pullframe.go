package transfer

import (
	"encoding/binary"
	"time"

	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/transfer/internal/match"
	"github.com/serry-dev/serry/transfer/offer"
)

// A request is what a consumer asks a producer for: one buffer of an offer, or a part of one. The consumer has posted a
// receive under the id that it names, and the producer answers by a send under the same id.
type request struct {
	forget bool // the consumer does not want it any more
	id     match.ID
	offer  offer.ID
	token  Token
	index  uint32
	class  uint8
	within time.Duration // how long the consumer waits; 0 means that it does not say
	view   View
}

const flagForget = 1 << 0

// appendRequest adds the bytes of a request.
func appendRequest(b []byte, q request) []byte {
	le := binary.LittleEndian
	flags := byte(0)
	if q.forget {
		flags |= flagForget
	}
	b = append(b, flags, q.class)
	b = le.AppendUint64(b, q.id.Namespace)
	b = le.AppendUint64(b, q.id.Key)
	b = le.AppendUint32(b, uint32(q.id.Src))
	b = le.AppendUint32(b, uint32(q.id.Dst))
	b = le.AppendUint64(b, uint64(q.offer))
	b = append(b, q.token[:]...)
	b = le.AppendUint32(b, q.index)
	b = le.AppendUint64(b, uint64(q.within))
	b = le.AppendUint64(b, uint64(q.view.Offset))
	b = le.AppendUint64(b, uint64(q.view.Run))
	b = append(b, byte(len(q.view.Counts)))
	for i, n := range q.view.Counts {
		b = le.AppendUint64(b, uint64(n))
		b = le.AppendUint64(b, uint64(q.view.Strides[i]))
	}
	return b
}

// parseRequests reads the requests of a frame. A peer may have sent anything.
func parseRequests(b []byte) ([]request, error) {
	var list []request
	r := reader{rest: b}
	for len(r.rest) > 0 && !r.failed {
		list = append(list, r.request())
	}
	if r.failed {
		return nil, errMalformed
	}
	return list, nil
}

func (r *reader) request() request {
	flags := r.byte()
	q := request{forget: flags&flagForget != 0, class: r.byte()}
	q.id = match.ID{Namespace: r.uint64(), Key: r.uint64(), Src: r.device(), Dst: r.device()}
	q.offer = offer.ID(r.uint64())
	copy(q.token[:], r.take(len(q.token)))
	q.index = binary.LittleEndian.Uint32(r.take(4))
	q.within = time.Duration(r.int64())
	q.view = View{Offset: r.int64(), Run: r.int64()}
	for range r.byte() {
		q.view.Counts = append(q.view.Counts, r.int64())
		q.view.Strides = append(q.view.Strides, r.int64())
		if r.failed {
			break
		}
	}
	r.failed = r.failed || flags&^flagForget != 0 || q.class > uint8(link.Bulk) || q.id.Namespace != pullNamespace
	return q
}
