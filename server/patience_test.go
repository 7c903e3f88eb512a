package server

import (
	"testing"
	"time"
)

func TestPatience(t *testing.T) {
	of := func(calls int) *wave { return &wave{replies: make([]outgoing, calls)} }
	p := &pace{}
	p.note(800*time.Microsecond, []*wave{of(60), of(4)}, 1)
	for _, c := range []struct {
		what   string
		group  []*wave // of which the first was there before the answers left
		waited time.Duration
		want   time.Duration
	}{
		{"nobody is back", []*wave{of(9)}, 0, 800 * time.Microsecond},
		{"few are", []*wave{of(9), of(7), of(8)}, 300 * time.Microsecond, 500 * time.Microsecond},
		{"few are, for too long", []*wave{of(9), of(7)}, 900 * time.Microsecond, -100 * time.Microsecond},
		{"most are", []*wave{of(9), of(48)}, 900 * time.Microsecond, 100 * time.Microsecond},
		{"all are", []*wave{of(9), of(60), of(4)}, 0, 0},
	} {
		if got := p.patience(c.group, c.waited); got != c.want {
			t.Errorf("%s: patience %v after %v; want %v", c.what, got, c.waited, c.want)
		}
	}
	for range 10 {
		p.learn(false)
	}
	if got := p.patience([]*wave{of(9)}, 0); got != 100*time.Microsecond {
		t.Errorf("patience %v when nobody ever came; want an eighth", got)
	}
	p.learn(true)
	if got := p.patience([]*wave{of(9)}, 0); got != 200*time.Microsecond {
		t.Errorf("patience %v when somebody came again; want twice of that", got)
	}
	p.note(time.Minute, []*wave{of(64)}, 0)
	if got := p.patience(nil, 0); got != longestPatience>>2 {
		t.Errorf("patience %v after a slow write; want a quarter of the longest", got)
	}
	p.note(time.Minute, []*wave{of(1)}, 0)
	if got := p.patience([]*wave{of(1)}, 0); got != 0 {
		t.Errorf("patience %v of who calls alone; want none", got)
	}
}
