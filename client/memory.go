package client

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/serry-dev/serry/coord"
)

// A Memory is a key-value store in this process, with the rules of the service: for programs of a
// single process, and for tests.
type Memory struct {
	mu struct {
		sync.Mutex
		machine *coord.Machine
		last    coord.Req
		waiting map[coord.Req]chan coord.Reply
	}
}

// NewMemory makes an empty store.
func NewMemory() *Memory {
	s := new(Memory)
	s.mu.machine = coord.New(coord.Config{Jobs: []coord.Job{{Name: "memory", Tasks: 1}}, Service: 1})
	s.mu.waiting = make(map[coord.Req]chan coord.Reply)
	return s
}

// KV is the store as members see theirs.
func (s *Memory) KV() *KV { return &KV{store: s} }

// Close ends every wait with serry.ErrStopping. What is stored stays readable.
func (s *Memory) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step(coord.Stop{})
}

func (s *Memory) change(ctx context.Context, make func(coord.Call) coord.Event) (coord.Result, error) {
	return s.read(ctx, make)
}

// keep copies a value that is about to be stored: the caller may change it afterwards.
func (s *Memory) keep(value []byte) []byte { return bytes.Clone(value) }

func (s *Memory) read(ctx context.Context, event func(coord.Call) coord.Event) (coord.Result, error) {
	answer := make(chan coord.Reply, 1)
	s.mu.Lock()
	s.mu.last++
	req := s.mu.last
	s.mu.waiting[req] = answer
	s.step(event(coord.Call{Req: req}))
	s.mu.Unlock()
	select {
	case r := <-answer:
		return copied(r.Result), r.Err
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.waiting, req)
		s.step(coord.Cancel{Req: req})
		return nil, context.Cause(ctx)
	}
}

// step runs the machine and hands out its replies. mu must be held.
func (s *Memory) step(ev coord.Event) {
	for _, e := range s.mu.machine.Step(0, ev) {
		if r, ok := e.(coord.Reply); ok {
			if answer := s.mu.waiting[r.Req]; answer != nil {
				delete(s.mu.waiting, r.Req)
				answer <- r
			}
		}
	}
}

// copied makes sure that what is stored is not changed by who reads it.
func copied(r coord.Result) coord.Result {
	switch r := r.(type) {
	case coord.Value:
		r.Value = bytes.Clone(r.Value)
		return r
	case coord.Entries:
		r.Entries = slices.Clone(r.Entries)
		for i, e := range r.Entries {
			r.Entries[i].Value = bytes.Clone(e.Value)
		}
		return r
	case coord.Changes:
		r.Changes = slices.Clone(r.Changes)
		for i, c := range r.Changes {
			r.Changes[i].Value = bytes.Clone(c.Value)
		}
		return r
	}
	return r
}
