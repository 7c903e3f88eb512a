package stream

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
)

// A box is a Sink that keeps bodies of replies.
type box struct{ bodies []string }

func (b *box) Reply(r Reply)                { b.bodies = append(b.bodies, string(r.Body)) }
func (b *box) Standing(Standing)            {}
func (b *box) Epoch(serry.Incarnation)      {}
func (b *box) Up(uint64, serry.Incarnation) {}
func (b *box) Down(error)                   {}
func (b *box) Flush()                       {}

// TestRepliesOfFormerTerms sends replies by hand, in an order that no server would.
func TestRepliesOfFormerTerms(t *testing.T) {
	for _, clause := range []string{"A-SIDE-20", "C-TERM-1", "NEW-48", "T-RLY-14", "T-AG-55", "A-GO-12"} {
		t.Run(clause, func(t *testing.T) { synctest.Test(t, testFormerTerms) })
	}
}

func testFormerTerms(t *testing.T) {
	far := make(chan net.Conn, 1)
	sink := new(box)
	h := NewHost(HostConfig{Addresses: []string{"a"}, Kind: Client, Sink: sink, Dial: func(context.Context, string) (net.Conn, error) {
		near, server := net.Pipe()
		select {
		case far <- server:
			return near, nil
		default:
			return nil, errors.New("refused")
		}
	}})
	h.Open(1)
	for id := range 3 {
		if err := h.Call(Call{Conn: 1, ID: rpcID(id), Method: "/a/b"}); err != nil {
			t.Fatal(err)
		}
	}
	nc := <-far
	go func() { // whatever the host says
		b := make([]byte, 1<<10)
		for {
			if _, err := nc.Read(b); err != nil {
				return
			}
		}
	}()
	reply := func(id int, term uint64, body string) {
		r := Reply{Conn: 1, Call: rpcID(id), Term: term, Body: []byte(body)}
		nc.Write(appendWholeReply(nil, &r))
		synctest.Wait()
	}
	nc.Write(appendFrame([]byte(Preface), &welcome{support: supportOf(Speaks()), term: 4, service: 7, store: 9}))
	synctest.Wait()
	reply(0, 3, "old")
	reply(1, 4, "one")
	reply(1, 4, "one again")
	reply(0, 4, "zero")
	if got := len(sink.bodies); got != 2 || sink.bodies[0] != "one" || sink.bodies[1] != "zero" {
		t.Errorf("replies %q; want one of term 4 to each of two calls", sink.bodies)
	}
	reply(2, 5, "newer") // then this connection is one to a leader that was
	if h.Term() != 5 || len(sink.bodies) != 3 {
		t.Errorf("term %d, replies %q; want 5, and the reply", h.Term(), sink.bodies)
	}
	time.Sleep(time.Second)
	if _, err := nc.Write([]byte{0}); err == nil {
		t.Error("the connection to the former leader is still open")
	}
	h.Close(t.Context())
}

// Term is the highest term of a leader that this host has seen, of the store that it follows.
func (h *Host) Term() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.term
}
