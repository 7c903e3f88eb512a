package wire

import (
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/xlapb"
)

// Calls on keys are the same in both dialects, but for how the caller is known: a request of dialect XLA says it, and
// one of dialect TF does not.

// keyCall reads what is common to calls that name no task.
func (d *decoder) keyCall(m any) coord.Call {
	if m, ok := m.(interface{ GetIncarnations() *xlapb.Incarnations }); ok {
		return d.xlaCall(m.GetIncarnations())
	}
	return d.tfCall()
}

// A keyed request names a key.
type keyed interface{ GetKey() string }

func readGet[M keyed](d *decoder, m M) (coord.Event, error) {
	return coord.GetKeyValue{Call: d.keyCall(m), Key: m.GetKey()}, nil
}

func readTryGet[M keyed](d *decoder, m M) (coord.Event, error) {
	return coord.TryGetKeyValue{Call: d.keyCall(m), Key: m.GetKey()}, nil
}

func readDelete[M keyed](d *decoder, m M) (coord.Event, error) {
	return coord.DeleteKeyValue{Call: d.keyCall(m), Key: m.GetKey()}, nil
}

func readIncrement[M interface {
	keyed
	GetIncrement() int64
}](d *decoder, m M) (coord.Event, error) {
	return coord.IncrementKeyValue{Call: d.keyCall(m), Key: m.GetKey(), By: m.GetIncrement()}, nil
}

func readDir[M interface{ GetDirectoryKey() string }](d *decoder, m M) (coord.Event, error) {
	return coord.GetKeyValueDir{Call: d.keyCall(m), Dir: m.GetDirectoryKey()}, nil
}
