package transfer

import (
	"context"
	"errors"
	"fmt"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/transfer/offer"
)

// A fetch brings bytes of an array to the devices of this process that need them. It has one step under way at a time.
type fetch struct {
	*resharding
	moves   []mesh.Move      // of the same bytes
	sources []serry.DeviceID // that were not tried; the next one first
}

// next takes the bytes from the next device that holds them. cause is why the one before could not give them, or nil.
func (f *fetch) next(cause error) {
	for len(f.sources) > 0 && f.ctx.Err() == nil {
		source := f.sources[0]
		f.sources = f.sources[1:]
		if f.mine(source) {
			f.copy(source)
			return
		}
		task, _ := f.engine.owner(source)
		p, err := f.engine.peerOf(task)
		if err == nil {
			f.pull(source, p.life)
			return
		}
		cause = err
	}
	if err := context.Cause(f.ctx); err != nil {
		cause = err
	}
	f.end(cause)
}

// end notes how the moves ended.
func (f *fetch) end(err error) {
	if err != nil {
		err = fmt.Errorf("reshard %d: %w", f.Key, err)
	}
	for _, m := range f.moves {
		f.shards[m.To].ended(err)
	}
	f.ended()
}

// failed tries another source, unless the bytes are not wanted any more, or no source could be right.
func (f *fetch) failed(err error) {
	if errors.Is(err, ErrCancelled) || errors.Is(err, ErrInvalid) {
		f.end(err)
		return
	}
	f.next(err)
}

// copy copies the bytes from a shard of this process.
func (f *fetch) copy(source serry.DeviceID) {
	b := f.Shards[source]
	b.Definition().After(func(err error) {
		if err != nil {
			f.failed(err)
			return
		}
		for _, m := range f.moves {
			m.From = source
			if err := m.Apply(f.shards[m.To].memory.Bytes(), b.memory.Region.Bytes()); err != nil {
				f.end(err)
				return
			}
		}
		f.end(nil)
	})
}

// pull pulls the bytes from a shard of another process: into place, or into memory from which they are put into place.
func (f *fetch) pull(source serry.DeviceID, from serry.Life) {
	m := f.moves[0]
	bytes := int64(m.Pattern.Bytes())
	into := viewOf(m.ToOffset, m.Pattern, m.Pattern.ToStrides)
	if len(f.moves) == 1 && len(into.Counts) == 0 {
		f.request(source, from, f.shards[m.To].memory.Slice(into.Offset, into.Offset+into.Run), func() {})
		return
	}
	e := f.engine
	e.unpacking.take(from, bytes, func() {
		e.pool.run(func() { // not here: a request that is refused gives its room to the next one
			f.request(source, from, memory.Of(make([]byte, bytes)), func() { e.unpacking.give(from, bytes) })
		})
	})
}

// request pulls the bytes into memory. It calls release when the memory is not used any more.
func (f *fetch) request(source serry.DeviceID, from serry.Life, into memory.Region, release func()) {
	m, e := f.moves[0], f.engine
	view := viewOf(m.FromOffset, m.Pattern, m.Pattern.FromStrides)
	spec := Spec{Type: memory.U8, Dims: []int64{into.Len()}}
	b, err := e.pool.Buffer(spec, Memory{Region: into, Device: m.To})
	if err != nil {
		release()
		f.end(err)
		return
	}
	h := Handle{From: from, ID: reservedOffers + offer.ID(f.Key), Token: f.token}
	g, err := e.Pull(f.ctx, h, []Want{{Index: f.index[source], View: view, Device: m.To, Buffer: b, Spec: spec, Class: f.Class}})
	if err != nil {
		b.Delete()
		release()
		f.failed(err)
		return
	}
	g.Done().After(func(err error) {
		defer release()
		if err != nil {
			f.failed(err)
			return
		}
		f.result.fetched.Add(into.Len())
		f.place(into)
		f.end(nil)
	})
}

// place puts bytes that have come into the shards that need them, unless they came into place.
func (f *fetch) place(packed memory.Region) {
	for _, m := range f.moves {
		into := viewOf(m.ToOffset, m.Pattern, m.Pattern.ToStrides)
		if len(f.moves) > 1 || len(into.Counts) > 0 {
			into.scatter(f.shards[m.To].memory.Bytes(), packed.Bytes())
		}
	}
}

// viewOf is one side of a move. Loops that go on without a gap on this side are joined.
func viewOf(offset int, p *mesh.Pattern, strides []int) View {
	v := View{Offset: int64(offset), Run: int64(p.Run)}
	for i := len(p.Counts) - 1; i >= 0; i-- {
		n, stride := int64(p.Counts[i]), int64(strides[i])
		if len(v.Counts) == 0 && stride == v.Run {
			v.Run *= n
			continue
		}
		v.Counts, v.Strides = append([]int64{n}, v.Counts...), append([]int64{stride}, v.Strides...)
	}
	return v
}
