package stream

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
)

// A diary is a Sink that keeps what it hears in order.
type diary struct {
	words []string
	onUp  func(service serry.Incarnation)
}

func (d *diary) note(format string, args ...any) {
	d.words = append(d.words, fmt.Sprintf(format, args...))
}

func (d *diary) Reply(r Reply)             { d.note("reply %s", r.Body) }
func (d *diary) Standing(s Standing)       { d.note("standing %v", s.Incarnation) }
func (d *diary) Epoch(s serry.Incarnation) { d.note("epoch %v", s) }
func (d *diary) Down(error)                { d.note("down") }
func (d *diary) Flush()                    {}

func (d *diary) Up(_ uint64, service serry.Incarnation) {
	d.note("up %v", service)
	if d.onUp != nil {
		d.onUp(service)
	}
}

// welcomes are the first words of a server that leads, in an epoch.
func welcomes(service serry.Incarnation) []byte {
	return appendFrame([]byte(Preface), &welcome{support: supportOf(Speaks()), term: 4, service: service, store: 9})
}

// byHand starts a host with a call under way, whose servers are played by the test: each connection that it
// makes comes out of the channel, and what it says is lost.
func byHand(t *testing.T, sink Sink) <-chan net.Conn {
	far := make(chan net.Conn, 8)
	h := NewHost(HostConfig{Addresses: []string{"a"}, Kind: Relay, Sink: sink, Dial: func(context.Context, string) (net.Conn, error) {
		near, server := net.Pipe()
		go func() {
			b := make([]byte, 1<<10)
			for {
				if _, err := server.Read(b); err != nil {
					return
				}
			}
		}()
		far <- server
		return near, nil
	}})
	t.Cleanup(func() {
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		h.Close(gone)
	})
	h.Open(1)
	if err := h.Call(Call{Conn: 1, ID: 1, Method: "/a/b"}); err != nil {
		t.Fatal(err)
	}
	return far
}

// TestWelcomeIsHeardFirst: a session that is resumed may get an epoch and answers in one packet with the
// welcome, which was written before the epoch opened. The sink must not be left with the epoch of the welcome.
func TestWelcomeIsHeardFirst(t *testing.T) {
	t.Run("C-EPOCH-5 A-SIDE-9", func(t *testing.T) {
		for range 20 { // which goroutine is first is up to the scheduler
			synctest.Test(t, testWelcomeFirst)
		}
	})
}

func testWelcomeFirst(t *testing.T) {
	sink := new(diary)
	nc := <-byHand(t, sink)
	b := appendFrame(welcomes(77), &epoch{78})
	b = appendWholeReply(b, &Reply{Conn: 1, Call: 1, Term: 4, Body: []byte("taken")})
	nc.Write(b)
	synctest.Wait()
	if want := []string{"up 77", "epoch 78", "reply taken"}; !slices.Equal(sink.words, want) {
		t.Fatalf("the sink heard %q; want %q", sink.words, want)
	}
}

// TestReplacedLineSaysNothing: what the host has read from a connection when another takes its place is
// older than what the other one said.
func TestReplacedLineSaysNothing(t *testing.T) {
	t.Run("C-EPOCH-5 A-SIDE-18", func(t *testing.T) { synctest.Test(t, testReplacedLine) })
}

func testReplacedLine(t *testing.T) {
	sink := new(diary)
	far := byHand(t, sink)
	first := <-far
	sink.onUp = func(service serry.Incarnation) {
		if service == 78 { // while the sink hears of the second connection, words come on the first
			b := appendFrame(nil, &epoch{77})
			b = appendFrame(b, &Standing{Life: serry.Life{Task: serry.TaskID{Job: "w"}, Incarnation: 5}, State: serry.Connected, Service: 77})
			first.Write(appendWholeReply(b, &Reply{Conn: 1, Call: 1, Term: 4, Body: []byte("old")}))
		}
	}
	first.Write(welcomes(76))
	time.Sleep(ResumeAfter + BeatEvery)
	second := <-far
	second.Write(welcomes(78))
	synctest.Wait()
	second.Write(appendWholeReply(nil, &Reply{Conn: 1, Call: 1, Term: 4, Body: []byte("new")}))
	synctest.Wait()
	if want := []string{"up 76", "up 78", "reply new"}; !slices.Equal(sink.words, want) {
		t.Errorf("the sink heard %q; want %q", sink.words, want)
	}
}

// TestLineThatEndsWithItsWelcome: the host looks for the next connection, whichever of the two words about
// the first comes first: that it was welcomed, or that it has ended.
func TestLineThatEndsWithItsWelcome(t *testing.T) {
	t.Run("A-SIDE-2", func(t *testing.T) {
		for range 20 {
			synctest.Test(t, func(t *testing.T) {
				sink := new(diary)
				far := byHand(t, sink)
				first := <-far
				first.Write(welcomes(77))
				first.Close()
				begun := time.Now()
				(<-far).Write(welcomes(77))
				if took := time.Since(begun); took > lastRetry {
					t.Errorf("the second connection came after %v", took)
				}
				synctest.Wait()
				if want := []string{"up 77", "down", "up 77"}; !slices.Equal(sink.words, want) {
					t.Errorf("the sink heard %q; want %q", sink.words, want)
				}
			})
		}
	})
}
