package link_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// Random messages between three tasks, while connections break, hosts are cut off, and tasks are killed and
// replaced. Every message ends; one that succeeds has the right bytes; the memory of one that failed is not
// touched afterwards. LINK_SEEDS=n runs more schedules, LINK_SEED=n one of them.
func TestSeeds(t *testing.T) {
	clause.Cite(t, "CL-TRN-5", "CL-TRN-10", "CL-TRN-23", "CL-TRN-24")
	count := 60
	if n, err := strconv.Atoi(os.Getenv("LINK_SEEDS")); err == nil {
		count = n
	}
	first := 0
	if n, err := strconv.Atoi(os.Getenv("LINK_SEED")); err == nil {
		first, count = n, 1
	}
	for seed := first; seed < first+count; seed++ {
		ok := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				s := &schedule{world: w, rand: rand.New(rand.NewPCG(uint64(seed), 1))}
				s.run()
			})
		})
		if !ok {
			t.Fatalf("replay by LINK_SEED=%d go test ./link -run TestSeeds", seed)
		}
	}
}

// A schedule is one run of random messages and faults.
type schedule struct {
	*world
	rand    *rand.Rand
	nets    [3]*link.Net
	next    uint64 // incarnation, and name of a message
	pending sync.WaitGroup
	mu      sync.Mutex
	failed  []memory
}

// A memory is what was posted for a message that failed: it must stay as it is.
type memory struct{ now, then []byte }

func (s *schedule) run() {
	for i := range s.nets {
		s.start(i)
	}
	for range 80 {
		switch n := s.rand.IntN(100); {
		case n < 70:
			s.message()
		case n < 80:
			s.network.reset(hostOf(s.nets[s.rand.IntN(3)].Life()))
		case n < 88:
			s.cut()
		case n < 92:
			s.replace()
		default:
			time.Sleep(time.Duration(s.rand.IntN(500)) * time.Millisecond)
		}
	}
	s.pending.Wait()
	for _, m := range s.failed {
		if !bytes.Equal(m.now, m.then) {
			s.t.Error("memory was touched after its message had failed")
		}
	}
	for _, n := range s.nets {
		if n != nil {
			n.Close(context.Background())
		}
	}
	synctest.Wait()
}

// start begins a new life of a task.
func (s *schedule) start(task int) {
	s.next++
	l := life(task, s.next)
	s.set(serry.TaskInfo{Task: l.Task, Incarnation: l.Incarnation, State: serry.Connected})
	n, err := s.open(l, func(o *link.Options) {
		o.Chunk, o.Lanes = 32<<10, 1+s.rand.IntN(2)
		o.Collective = link.Checksum(1 + s.rand.IntN(2))
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.nets[task] = n
}

// replace kills a task and starts its next life.
func (s *schedule) replace() {
	task := s.rand.IntN(3)
	old := s.nets[task]
	s.network.kill(hostOf(old.Life()))
	if s.rand.IntN(2) == 0 { // the service hears of it first, or much later
		s.lose(old.Life(), "process exited: signal 9")
	}
	s.start(task)
	go old.Close(context.Background())
}

// cut separates two hosts for a while, in one direction or both.
func (s *schedule) cut() {
	a, b := hostOf(s.nets[s.rand.IntN(3)].Life()), hostOf(s.nets[s.rand.IntN(3)].Life())
	if a == b {
		return
	}
	both := s.rand.IntN(2) == 0
	s.network.cut(a, b)
	if both {
		s.network.cut(b, a)
	}
	after := time.Duration(s.rand.IntN(5000)) * time.Millisecond
	s.pending.Go(func() {
		time.Sleep(after)
		s.network.heal(a, b)
		if both {
			s.network.heal(b, a)
		}
	})
}

// message sends a message from one task to another. Both sides give up after a while.
func (s *schedule) message() {
	from, to := s.nets[s.rand.IntN(3)], s.nets[s.rand.IntN(3)]
	s.next++
	size := 1 << s.rand.IntN(19)
	size += s.rand.IntN(size)
	h := data(link.Collective, s.next)
	want, got := fill(size, s.next), make([]byte, size)
	patience := func() time.Duration { return time.Duration(s.rand.IntN(4000)) * time.Millisecond }
	delays := [4]time.Duration{patience() / 8, patience(), patience() / 8, patience()}
	s.pending.Go(func() {
		time.Sleep(delays[0])
		s.side(delays[1], from, to.Life(), want, func(l *link.Link) (*link.Ticket, error) { return l.Post(h, want) })
	})
	s.pending.Go(func() {
		time.Sleep(delays[2])
		err := s.side(delays[3], to, from.Life(), got, func(l *link.Link) (*link.Ticket, error) { return l.Expect(h, got) })
		if err == nil && !bytes.Equal(got, fill(size, h.Seq)) {
			s.t.Errorf("message %d of %d bytes has other bytes", h.Seq, size)
		}
	})
}

// side is one end of a message. When it fails its memory is given another use.
func (s *schedule) side(patience time.Duration, n *link.Net, peer serry.Life, b []byte, begin func(*link.Link) (*link.Ticket, error)) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	l, err := n.Link(ctx, peer)
	if err != nil {
		return err
	}
	ticket, err := begin(l)
	if err == nil {
		err = ticket.Wait(ctx)
	}
	if err == nil {
		return nil
	}
	if _, lost := errors.AsType[*link.LossError](err); !lost && !errors.Is(err, link.ErrCancelled) {
		s.t.Errorf("message failed with %v", err)
	}
	other := fill(len(b), 12345)
	copy(b, other)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, memory{b, other})
	return err
}
