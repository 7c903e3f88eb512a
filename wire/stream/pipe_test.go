package stream

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/serry-dev/serry/wire/conn"
)

var lasts = flag.Duration("lasts", 2*time.Second, "how long pipes are stressed")

// An order is a frameHandler that checks that the calls of each connection come in order, and all of them.
type order struct {
	next [flushers]uint64
}

const flushers = 6

func (o *order) admit(frameType, []byte, int) (bool, error) { return true, nil }
func (o *order) served()                                    {}
func (o *order) frame(_ frameType, head, _ []byte, _ bool) error {
	var codec codec
	codec.read(head)
	c, _ := readCall(&codec)
	if c.Conn >= flushers || c.Number != o.next[c.Conn] {
		return fmt.Errorf("call %d of connection %d; want %d", c.Number, c.Conn, o.next)
	}
	o.next[c.Conn]++
	return nil
}

// TestOneWriter lets several goroutines flush a pipe over a socket that is full at times, so that the role
// of the writer goes from one to the other all the time.
func TestOneWriter(t *testing.T) {
	for _, size := range []int{20, 100_000} {
		t.Run(fmt.Sprint("bytes=", size), func(t *testing.T) { testOneWriter(t, make([]byte, size)) })
	}
}

func testOneWriter(t *testing.T, body []byte) {
	near, far := socketPair(t)
	sender, receiver := newPipe(conn.New(near), time.Now(), 0), newPipe(conn.New(far), time.Now(), 0)
	sender.add(len(Preface), func(b []byte) []byte { return append(b, Preface...) }, nil)
	var reading, work sync.WaitGroup
	var failed atomic.Bool
	got := new(order)
	reading.Go(func() {
		err := receiver.read(&frameReader{handler: got, limit: serverLimits})
		failed.Store(true)
		receiver.Fail(err)
	})
	end := time.Now().Add(*lasts)
	var sent [flushers]uint64
	for i := range flushers {
		work.Go(func() {
			for time.Now().Before(end) && !failed.Load() {
				sender.HoldBack()
				k := &pending{Call: Call{Conn: ConnID(i), Number: sent[i], Method: "/a/b", Body: body}, info: bodyInfoOf(body)}
				k.send(sender)
				sent[i]++
				sender.Flush()
				for range rand.IntN(3000) {
					failed.Load()
				}
			}
		})
	}
	work.Wait()
	sender.drain(time.Minute)
	sender.Fail(net.ErrClosed)
	sender.Wait()
	reading.Wait()
	if got.next != sent {
		t.Errorf("%v calls came of %v: %v", got.next, sent, receiver.Err())
	}
}

// socketPair is two ends of a connection of the network.
func socketPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	near.(*net.TCPConn).SetWriteBuffer(64 << 10)
	far.(*net.TCPConn).SetReadBuffer(64 << 10)
	return near, far
}
