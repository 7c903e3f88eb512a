package front

import (
	"sync"
	"sync/atomic"
	"time"
)

// An alarm is a time at which to look at a call, or, with stream 0, at the connection itself.
type alarm struct {
	when   time.Duration
	conn   *connection
	stream uint32
}

// A scanner is the one clock of a server: a heap of alarms and a goroutine that sleeps until the
// earliest. The goroutine exists only while there are alarms. An alarm of a call that has been
// answered stays until its time or until such ones are the majority.
type scanner struct {
	live atomic.Int64 // alarms that still have a meaning
	kick chan struct{}
	stop chan struct{}
	done sync.WaitGroup

	mu struct {
		sync.Mutex
		heap    []alarm
		running bool
		stopped bool
	}
}

// staleAlarms is how many meaningless alarms are not worth tidying up.
const staleAlarms = 1024

func (s *scanner) init() {
	s.kick = make(chan struct{}, 1)
	s.stop = make(chan struct{})
}

// add sets an alarm.
func (s *scanner) add(a alarm) {
	live := s.live.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopped {
		return
	}
	s.mu.heap = append(s.mu.heap, a)
	s.up(len(s.mu.heap) - 1)
	if !s.mu.running {
		s.mu.running = true
		s.done.Add(1)
		go s.run(a.conn.srv)
		return
	}
	if s.mu.heap[0] == a || s.stale(live) {
		s.poke()
	}
}

// forget says that n alarms have lost their meaning.
func (s *scanner) forget(n int) { s.live.Add(-int64(n)) }

func (s *scanner) poke() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// close ends the goroutine and waits for it.
func (s *scanner) close() {
	s.mu.Lock()
	if !s.mu.stopped {
		s.mu.stopped = true
		s.mu.heap = nil
		close(s.stop)
	}
	s.mu.Unlock()
	s.done.Wait()
}

func (s *scanner) run(srv *Server) {
	defer s.done.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, wait, more := s.due(srv.now())
		touched := make(map[*connection]struct{}) // one write each
		for _, a := range due {
			if a.stream == 0 {
				a.conn.check()
				continue
			}
			a.conn.expire(a.stream)
			touched[a.conn] = struct{}{}
		}
		for c := range touched {
			c.Flush()
		}
		if len(due) > 0 {
			continue
		}
		if !more {
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.kick:
		case <-s.stop:
			return
		}
	}
}

// due removes the alarms that are due by now. If there are none, it says how long until the next;
// more is false if there is no next, and then the goroutine must end.
func (s *scanner) due(now time.Duration) (due []alarm, wait time.Duration, more bool) {
	s.tidy()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.mu.heap) > 0 && s.mu.heap[0].when <= now {
		due = append(due, s.pop())
	}
	if len(due) > 0 {
		return due, 0, true
	}
	if len(s.mu.heap) == 0 {
		s.mu.running, s.mu.heap = false, nil
		return nil, 0, false
	}
	return nil, s.mu.heap[0].when - now, true
}

// stale says whether most alarms have lost their meaning; mu is held.
func (s *scanner) stale(live int64) bool { return int64(len(s.mu.heap)) > 2*live+staleAlarms }

// tidy removes meaningless alarms if they are many.
func (s *scanner) tidy() {
	s.mu.Lock()
	if !s.stale(s.live.Load()) {
		s.mu.Unlock()
		return
	}
	all := s.mu.heap
	s.mu.heap = nil
	s.mu.Unlock()
	kept := all[:0] // connections are asked without the lock: theirs come before it
	for _, a := range all {
		if a.conn.armed(a.stream) {
			kept = append(kept, a)
		}
	}
	clear(all[len(kept):])
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range kept {
		s.mu.heap = append(s.mu.heap, a)
		s.up(len(s.mu.heap) - 1)
	}
}

// up and pop keep the heap in order, earliest first.
func (s *scanner) up(i int) {
	h := s.mu.heap
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].when <= h[i].when {
			return
		}
		h[parent], h[i] = h[i], h[parent]
		i = parent
	}
}

func (s *scanner) pop() alarm {
	h := s.mu.heap
	top, last := h[0], len(h)-1
	h[0], h[last] = h[last], alarm{}
	h = h[:last]
	s.mu.heap = h
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if h[child].when < h[least].when {
				least = child
			}
		}
		if least == i {
			return top
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
