package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/goodput"
	"github.com/serry-dev/serry/relay"
	"github.com/serry-dev/serry/wire"
)

// external is a service that others run, for the attempts of many jobs one after the other. Tasks reach
// it by the relays of their hosts, which also report how their processes end; the silence of a host it
// hears itself. A new attempt needs no call by the launcher: its first registration opens the next epoch once
// the tasks of the former one are known to have ended (C-EPOCH-2, 4).
type external struct {
	upstream []string
	line     client.Transport // by the relay of this host
	relays   *attemptRelays   // of this host
	giveUp   time.Duration    // of the relay
	work     sync.WaitGroup
	store    *publisher
	outage   outageNews // owned by the caller of news

	mu struct {
		sync.Mutex
		last  coord.View
		since time.Time           // when the service last began to answer, or changed its leader
		lost  bool                // it did not answer when it was last asked
		term  uint64              // of its leader
		used  *wire.GoodputStatus // as the service last said, or nil
		next  chan struct{}       // closed when the picture that is being fetched is there; nil: none is
		ended bool
	}
}

// openExternal opens the relay of an attempt on this host.
func openExternal(cfg Config, here *crew, attempt int) (*external, error) {
	at, err := here.relayed(attempt)
	if err != nil {
		return nil, err
	}
	line, err := client.Dial(at, client.DialOptions{})
	if err != nil {
		return nil, err
	}
	s := &external{upstream: cfg.Relay.Upstream, line: line, relays: &here.relays, giveUp: cmp.Or(cfg.Relay.GiveUp, relay.DefaultGiveUp), store: newPublisher(line)}
	s.mu.since = time.Now()
	return s, nil
}

// Exited does nothing: the relay of the host has said it.
func (s *external) Exited(serry.TaskID, string) {}

// Lost does nothing: the service hears for itself that a host has fallen silent.
func (s *external) Lost(serry.TaskID, string) {}

func (s *external) address() string { return "" }

func (s *external) String() string {
	return "service on " + strings.Join(s.upstream, ",") + ", by relays"
}

// fetchTimeout is how long a picture may take. The service may be in an outage.
const fetchTimeout = 5 * time.Second

// view asks for the next picture, and returns the last.
func (s *external) view() coord.View {
	s.fresh()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.last
}

// fresh fetches a picture, one at a time.
func (s *external) fresh() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ended {
		return nil
	}
	if s.mu.next == nil {
		next := make(chan struct{})
		s.mu.next = next
		s.work.Go(func() { s.fetch(next) })
	}
	return s.mu.next
}

func (s *external) fetch(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	path, body, err := wire.StatusQuery{}.Request()
	var reply []byte
	if err == nil {
		reply, _, err = s.line.Call(ctx, path, body)
	}
	var st wire.Status
	if err == nil {
		st, err = wire.ReadStatus(reply)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.lost || err != nil || st.Term != s.mu.term {
		s.mu.since = time.Now()
	}
	if s.mu.lost = err != nil; err == nil { // else the service is out of reach, and the last picture stays
		s.mu.last, s.mu.term, s.mu.used = viewOf(st), st.Term, st.Goodput
	}
	s.mu.next = nil
	close(done)
}

// viewOf makes of a status what a launcher looks at: the first failure, and who waits for whom.
func viewOf(st wire.Status) coord.View {
	v := coord.View{Epoch: st.Epoch, Service: serry.Incarnation(st.Service), Now: coord.Time(st.UpSeconds * float64(time.Second)), Stopped: st.Stopped}
	if st.Failure != "" && st.First != nil {
		cause := errors.New(st.First.Cause)
		if st.First.Cause == serry.ErrTaskDead.Error() {
			cause = serry.ErrTaskDead
		}
		if task, err := serry.ParseTaskID(st.First.Task); err == nil {
			v.Failure = &serry.TaskError{Task: task, Incarnation: serry.Incarnation(st.First.Incarnation), Evidence: st.First.Evidence, Err: cause}
		}
	}
	for _, b := range st.Barriers {
		bar := coord.BarrierView{
			ID: b.ID, Counter: b.Counter, Members: b.Members, Arrived: b.Arrived,
			Since: v.Now - coord.Time(b.ForSeconds*float64(time.Second)),
		}
		for _, name := range b.Missing {
			if task, err := serry.ParseTaskID(name); err == nil {
				bar.Missing = append(bar.Missing, task)
			}
		}
		v.Barriers = append(v.Barriers, bar)
	}
	return v
}

func (s *external) lost() error {
	p := s.relays.now()
	if p == nil {
		return nil
	}
	st := p.relay.Status()
	if !st.GivenUp || !st.Down {
		return nil
	}
	err := fmt.Errorf("the coordinator is lost since %s: %v does not answer", st.Since.Format(time.TimeOnly), s)
	if st.Why != nil {
		err = fmt.Errorf("%w: %w", err, st.Why)
	}
	return err
}

func (s *external) steady() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.since
}

func (s *external) used() *wire.GoodputStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.used
}

// account is nil: a service that others run has an account of its own, over all attempts.
func (s *external) account() *goodput.Account { return nil }

func (s *external) publish(key string, value []byte) { s.store.publish(key, value) }

func (s *external) settle() { s.store.settle() }

func (s *external) gather(ctx context.Context, q wire.Inquiry) (wire.Gathered, error) {
	return gather(ctx, s.line, q)
}

func (s *external) close() error {
	s.mu.Lock()
	s.mu.ended = true
	s.mu.Unlock()
	err := s.line.Close()
	s.store.close()
	s.work.Wait()
	return err
}
