package conn_test

import (
	"testing"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire/conn"
)

// A message counts how often it may go on.
type message struct {
	conn.Share
	resumed int
}

func (m *message) Resume() { m.resumed++ }

func newMessage(b *conn.Budget) *message {
	m := new(message)
	m.Share = b.Share(m)
	return m
}

// TestBudgetLeader withholds room beyond the limit from all messages but one, and gives the turn to the
// next when that one ends.
func TestBudgetLeader(t *testing.T) {
	lab.Clause(t, "F-32")
	whole := conn.NewBudget(1 << 20)
	b := whole.Part(100)
	first, second, third := newMessage(b), newMessage(b), newMessage(b)
	steps := []struct {
		what string
		got  bool
		want bool
	}{
		{"within the limit", first.Reserve(90), true},
		{"beyond it: becomes leader", second.Reserve(20), true},
		{"beyond it, not the leader", third.Reserve(20), false},
		{"the leader again", second.Reserve(1000), true},
		{"bytes within twice the limit, leader aside", third.Raise(110), true},
		{"bytes beyond", third.Raise(111), false},
		{"bytes of the leader", second.Raise(1021), true},
	}
	for _, s := range steps {
		if s.got != s.want {
			t.Errorf("%s: %v; want %v", s.what, s.got, s.want)
		}
	}
	if first.Release(); third.resumed != 0 {
		t.Error("a message goes on although there is no room; want none")
	}
	if second.Release(); third.resumed != 1 {
		t.Errorf("after the end of the leader the next message was told %d times; want once", third.resumed)
	}
	if third.Release(); b.Used() != 0 || whole.Used() != 0 {
		t.Errorf("%d bytes left, %d of the whole; want none", b.Used(), whole.Used())
	}
}

// TestBudgetParts lets a message of one part wait for room that another part takes.
func TestBudgetParts(t *testing.T) {
	lab.Clause(t, "F-32")
	whole := conn.NewBudget(100)
	a, b := whole.Part(1000), whole.Part(1000)
	big, small := newMessage(a), newMessage(b)
	if !big.Reserve(90) || !big.Reserve(90) {
		t.Fatal("Reserve() = false; want a leader to go on")
	}
	if !small.Reserve(90) {
		t.Fatal("Reserve() = false; want room besides the leader")
	}
	if small.Reserve(20) || b.Used() != 90 {
		t.Fatalf("Reserve() = true, or %d bytes taken; want no room in the whole, and nothing taken", b.Used())
	}
	if big.Release(); small.resumed != 1 || !small.Reserve(20) {
		t.Errorf("told %d times, or no room; want the message to lead", small.resumed)
	}
	if small.Release(); whole.Used() != 0 {
		t.Errorf("%d bytes left; want none", whole.Used())
	}
}
