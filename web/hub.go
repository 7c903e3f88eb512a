package web

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/serry-dev/serry/diagnose"
)

const (
	// lookPause is the least time between two questions to the source.
	lookPause = 500 * time.Millisecond

	// lookShare bounds the share of the time that is spent on questions to one in this many.
	lookShare = 10

	// lookPatience is how long the source may take.
	lookPatience = 5 * time.Second

	// refreshPause is how often figures are sent that change while nothing happens.
	refreshPause = 15 * time.Second

	// How many events the hub keeps for viewers that connect later, or connect again.
	maxEvents     = 1000
	maxEventBytes = 256 << 10
)

// A picture is what is known of a job at one time.
type picture struct {
	diagnose.Evidence
	report diagnose.Report
	marks  []diagnose.Marked // of the tasks of the status
	taken  time.Time
	past   bool // it is of a journal
}

// A hub asks the source while there are viewers, and keeps what they are sent.
//
// Everything that a viewer is sent is a message with a number, which ascends. Of a topic such as the grid only the newest message
// is kept, because a viewer that missed an older one needs only the newest. Of events all are kept, up to a limit. So what a viewer has not
// seen yet is: the topics and the events with greater numbers than the last message it has, in their order. If events
// with such numbers are gone, it is told to forget what it has and gets everything.
type hub struct {
	source Source
	wake   chan struct{} // a picture is wanted; holds one
	stop   context.CancelFunc
	done   chan struct{} // loop has ended

	mu struct {
		sync.Mutex
		viewers int           // streams
		wanted  bool          // a request waits for a picture
		picture *picture      // the newest, or nil
		err     error         // of the last question, or nil
		next    chan struct{} // closed with the next answer

		instance string // of the hub, so that numbers of another one are not taken for its own
		last     uint64 // number of the newest message
		lost     uint64 // number of the newest event that is gone
		topics   map[string]topic
		events   []event       // the oldest first
		bytes    int           // of events
		changed  chan struct{} // closed when there are more messages
	}

	history  history // owned by loop
	surveyor surveyor
}

// A topic is the newest message of its kind.
type topic struct {
	message
	key string    // the same for messages that differ only in figures that change by themselves
	at  time.Time // when it was sent
}

// A message is what viewers are sent: a frame of the stream.
type message struct {
	number uint64
	name   string
	frame  []byte
}

// newHub makes a hub that runs until close.
func newHub(source Source) *hub {
	ctx, cancel := context.WithCancel(context.Background())
	network, _ := source.(Network)
	h := &hub{source: source, surveyor: surveyor{network: network}, wake: make(chan struct{}, 1), stop: cancel, done: make(chan struct{})}
	h.mu.next, h.mu.changed = make(chan struct{}), make(chan struct{})
	h.mu.topics = make(map[string]topic)
	h.mu.instance = NewToken()[:8]
	go h.loop(ctx)
	return h
}

func (h *hub) close() {
	h.stop()
	<-h.done
	h.surveyor.work.Wait()
}

// loop asks whenever a picture is wanted, with pauses between.
func (h *hub) loop(ctx context.Context) {
	defer close(h.done)
	for {
		if !h.isWanted() {
			select {
			case <-h.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		began := time.Now()
		h.look(ctx)
		h.survey(ctx)
		pause := time.NewTimer(max(lookPause, (lookShare-1)*time.Since(began)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

func (h *hub) isWanted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.viewers > 0 || h.mu.wanted
}

// look asks once, and publishes the answer.
func (h *hub) look(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookPatience, fmt.Errorf("no answer within %v", lookPatience))
	defer cancel()
	e, err := h.source.Look(ctx)
	now := time.Now()
	var p *picture
	var news []happening
	if err == nil {
		p = &picture{Evidence: e, report: diagnose.Judge(e), marks: diagnose.MarkRanks(e.Status, e.Hang), taken: now}
		news = h.history.update(p)
	} else if ctx.Err() == nil || context.Cause(ctx) != context.Canceled {
		news = h.history.away(now, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.err, h.mu.wanted = err, false
	if p != nil {
		h.mu.picture = p
		h.publishPicture(p)
	}
	h.publishAway(now, err)
	for _, n := range news {
		h.addEvent(n)
	}
	close(h.mu.next)
	h.mu.next = make(chan struct{})
	close(h.mu.changed)
	h.mu.changed = make(chan struct{})
}

// current is a picture that is not older than the pause between two. Where the source does not answer the error says why.
func (h *hub) current(ctx context.Context) (*picture, error) {
	h.mu.Lock()
	if p := h.mu.picture; p != nil && h.mu.err == nil && time.Since(p.taken) < lookPause {
		h.mu.Unlock()
		return p, nil
	}
	h.mu.wanted = true
	next := h.mu.next
	h.mu.Unlock()
	h.poke()
	select {
	case <-next:
	case <-h.done:
		return nil, errEnding
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.picture, h.mu.err
}

// poke wakes the loop if it waits.
func (h *hub) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// refreshed are the topics with figures that change while nothing happens.
var refreshed = []string{topicJob, topicWhy, topicPing}

// publish makes a message the newest of its topic, unless it would tell nothing new. It needs mu.
func (h *hub) publish(now time.Time, name, key string, document any) {
	had, ok := h.mu.topics[name]
	if ok && had.key == key && (now.Sub(had.at) < refreshPause || !slices.Contains(refreshed, name)) {
		return
	}
	h.mu.last++
	h.mu.topics[name] = topic{message: h.message(h.mu.last, name, document), key: key, at: now}
}

// message encodes a document, once for all viewers. It needs mu.
func (h *hub) message(number uint64, name string, document any) message {
	frame := fmt.Appendf(nil, "id: %s-%d\nevent: %s\ndata: ", h.mu.instance, number, name)
	return message{number, name, append(append(frame, encode(document)...), "\n\n"...)}
}

// addEvent adds what happened. An event that is the former one with more to it takes its place. It needs mu.
func (h *hub) addEvent(n happening) {
	h.mu.last++
	e := event{happening: n, message: h.message(h.mu.last, "event", n)}
	if last := len(h.mu.events) - 1; last >= 0 && h.mu.events[last].Key == n.Key {
		h.mu.bytes -= len(h.mu.events[last].frame)
		h.mu.events = h.mu.events[:last]
	}
	h.mu.events = append(h.mu.events, e)
	h.mu.bytes += len(e.frame)
	for len(h.mu.events) > maxEvents || h.mu.bytes > maxEventBytes && len(h.mu.events) > 1 {
		h.mu.lost = h.mu.events[0].number
		h.mu.bytes -= len(h.mu.events[0].frame)
		h.mu.events = slices.Delete(h.mu.events, 0, 1)
	}
}

// tell tells all viewers of something that happened to the job by this page.
func (h *hub) tell(n happening) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n.Key = fmt.Sprintf("act %s %d", h.mu.instance, h.mu.last)
	h.addEvent(n)
	close(h.mu.changed)
	h.mu.changed = make(chan struct{})
}

// An event is something that happened, as a message.
type event struct {
	happening
	message
}

// join counts a viewer. It says no where there are too many.
func (h *hub) join() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.viewers >= maxViewers {
		return false
	}
	h.mu.viewers++
	h.poke()
	return true
}

func (h *hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.viewers--
}

// A cursor is what a viewer has seen. The zero value is nothing.
type cursor struct {
	instance string
	number   uint64
}

// after returns the frames that a viewer of some topics has not seen, oldest first, and what it has seen then. changed is closed
// when there are more. reset says that the viewer must forget what it has.
func (h *hub) after(c cursor, topics []string) (frames [][]byte, now cursor, reset bool, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.instance != h.mu.instance || c.number < h.mu.lost || c.number > h.mu.last {
		reset = c != cursor{}
		c.number = 0
	}
	var all []message
	for name, t := range h.mu.topics {
		if t.number > c.number && slices.Contains(topics, name) {
			all = append(all, t.message)
		}
	}
	if slices.Contains(topics, topicEvents) {
		for i := len(h.mu.events) - 1; i >= 0 && h.mu.events[i].number > c.number; i-- {
			all = append(all, h.mu.events[i].message)
		}
	}
	slices.SortFunc(all, func(a, b message) int { return cmp.Compare(a.number, b.number) })
	for _, m := range all {
		frames = append(frames, m.frame)
	}
	return frames, cursor{h.mu.instance, h.mu.last}, reset, h.mu.changed
}

// pastEvents are the events that are kept, the oldest first.
func (h *hub) pastEvents() []happening {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]happening, len(h.mu.events))
	for i, e := range h.mu.events {
		all[i] = e.happening
	}
	return all
}
