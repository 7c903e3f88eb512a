package link

import (
	"context"
	"iter"
	"runtime"
	"slices"
	"time"

	"github.com/serry-dev/serry/wire/conn"
)

// A process that sends much tries one more bulk lane, and keeps it if it sends a tenth more in the same time (CL-TRN-3). It
// alone writes to the lanes that it has added. So it may close one between two frames without asking, and the peer takes
// that for no loss. Each side of a link adds lanes for what it sends itself.

const (
	trialTime  = 250 * time.Millisecond // of writing, in which the speed of some lanes is measured
	trialBytes = 64 << 20               // that are written in it, at least
	trialPause = time.Minute            // until the next trial, once one more lane did not help
	worthLane  = 1.1                    // by how much one more lane must raise the speed
	idleLanes  = 10 * time.Second       // without anything to write, until lanes that were added are closed

	// maxGuests is how many lanes a peer may add. One that closes lanes and adds others may be ahead of what was read of
	// their ends.
	maxGuests = 2 * MaxLanes
)

// mostLanes is how many bulk lanes a process writes to: as many as its options say, else what measurements say, up to half
// of its processors.
func mostLanes(lanes int) int {
	if lanes > 0 {
		return lanes
	}
	return min(max(defaultLanes, runtime.NumCPU()/2), MaxLanes)
}

// A tuner finds how many bulk lanes are worth writing to. The lock of the link guards it.
type tuner struct {
	added    []*lane // by this process; those that are retired are still writing
	dialling bool    // one more is being made
	trial    bool    // the last one is on trial
	rate     float64 // bytes a second before its trial
	next     time.Duration

	// A measurement: of the bytes written since from, and of the time in which there was something to write. It begins and
	// ends when a step of a chunk was written, since bytes are counted then.
	from  int64
	busy  time.Duration // up to since
	since time.Duration // while there is something to write: since when busy does not count it
}

// begin starts a measurement. moved is when the last step was written.
func (t *tuner) begin(moved time.Duration, written int64) {
	t.from, t.busy, t.since = written, 0, moved
}

// rest notes that there is nothing to write any more.
func (t *tuner) rest(now time.Duration) { t.busy += now - t.since }

// measure ends a measurement that is long enough, and begins the next. moving says whether there is something to write.
func (t *tuner) measure(moved time.Duration, written int64, moving bool, least int64) (rate float64, ok bool) {
	busy, bytes := t.busy, written-t.from
	if moving {
		busy += moved - t.since
	}
	if busy < trialTime || bytes < least {
		return 0, false
	}
	t.begin(moved, written)
	return float64(bytes) / busy.Seconds(), true
}

// tune adds a lane, or retires what did not help or is idle. The detector calls it.
func (l *Link) tune(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.mu.tuner
	moving, moved, written := len(l.mu.sender.moving) > 0, time.Duration(l.moved.Load()), l.written.Load()
	if l.mu.state != up || l.peer == l.net.life {
		return
	}
	if !moving && now-moved >= idleLanes {
		l.retire(len(t.added))
		t.begin(moved, written)
		t.trial, t.next = false, 0
		return
	}
	rate, ok := t.measure(moved, written, moving, l.net.trialBytes)
	if !ok || t.dialling {
		return
	}
	if t.trial && rate < worthLane*t.rate {
		l.retire(1)
		t.trial, t.next = false, now+trialPause
		return
	}
	t.trial, t.rate = false, rate
	if now >= t.next && l.bulkLanes() < l.net.mostLanes {
		t.dialling = true
		l.net.work.Go(l.addLane)
	}
}

// bulkLanes is how many lanes this process writes bulk data to. The lock is held.
func (l *Link) bulkLanes() int {
	n := len(l.lanes) - firstBulk
	for _, a := range l.mu.tuner.added {
		if !a.retired {
			n++
		}
	}
	return n
}

// addLane makes one more lane, and begins its trial. If the peer does not take it the next one is tried later.
func (l *Link) addLane() {
	ctx, cancel := context.WithTimeout(l.net.ctx, handshakeTime)
	defer cancel()
	c, err := l.dialMore(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.mu.tuner
	t.dialling = false
	switch {
	case err != nil:
		l.net.log.Debug("no lane added", "peer", l.peer.Task, "err", err)
		t.next = l.net.now() + trialPause
	case l.mu.state != up:
		c.Close()
	default:
		t.added = append(t.added, newLane(l, len(l.lanes), c, c))
		t.trial = true
		t.begin(time.Duration(l.moved.Load()), l.written.Load())
		l.startWriters(1)
	}
}

// dialMore connects to the peer once more. The number of the lane is the one behind those of the set, for all that are added.
func (l *Link) dialMore(ctx context.Context) (*conn.Conn, error) {
	n := l.net
	addresses, err := n.lookup(ctx, l.peer)
	if err != nil {
		return nil, err
	}
	lane := len(l.lanes)
	c, _, err := n.dialAny(ctx, addresses, func() hello { return n.hello(l.peer, lane, lane+1, l.set, 0) })
	return c, err
}

// retire closes the last n lanes that were added. One that is writing is closed when it has done with its chunk. The lock
// is held.
func (l *Link) retire(n int) {
	for _, a := range slices.Backward(slices.Clone(l.mu.tuner.added)) {
		if n > 0 && !a.retired {
			n--
			a.retired = true
			if !a.writing {
				l.closeRetired(a)
			}
		}
	}
}

// closeRetired closes a lane that was added and does not write any more. The lock is held.
func (l *Link) closeRetired(a *lane) {
	t := &l.mu.tuner
	t.added = slices.DeleteFunc(t.added, func(b *lane) bool { return b == a })
	a.out.Close()
	l.startWriters(1) // it may have been started for a chunk that no other lane has been
}

// extends says whether the peer may add a lane to a link that is up.
func (l *Link) extends(h *hello) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.state == up && l.set == h.set && int(h.lane) == len(l.lanes) && len(l.mu.guests) < maxGuests
}

// addGuest takes a lane that the peer has added. The lock is held.
func (l *Link) addGuest(c *conn.Conn) {
	a := newLane(l, len(l.lanes), c, c)
	a.guest = true
	l.mu.guests = append(l.mu.guests, a)
	l.active.Add(1)
	go a.readGuest()
}

// readGuest reads a lane that the peer has added, until the peer closes it.
func (a *lane) readGuest() {
	l := a.link
	err := a.readChunks()
	l.mu.Lock()
	l.mu.guests = slices.DeleteFunc(l.mu.guests, func(b *lane) bool { return b == a })
	l.mu.Unlock()
	a.in.Close()
	l.active.Done()
	if err != nil {
		l.broken(err)
	}
}

// writers are the lanes that this process writes bulk data to. The lock is held.
func (l *Link) writers() iter.Seq[*lane] { return each(l.lanes[firstBulk:], l.mu.tuner.added) }

// readers are the lanes that it reads bulk data from. The lock is held.
func (l *Link) readers() iter.Seq[*lane] { return each(l.lanes[firstBulk:], l.mu.guests) }

// connections are all lanes, and nil for each that is not there yet.
func (l *Link) connections() []*lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Concat(l.lanes, l.mu.tuner.added, l.mu.guests)
}

func each(lists ...[]*lane) iter.Seq[*lane] {
	return func(yield func(*lane) bool) {
		for _, list := range lists {
			for _, a := range list {
				if !yield(a) {
					return
				}
			}
		}
	}
}
