package transfer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/transfer/internal/match"
)

const (
	reportAfter  = 30 * time.Second // after which a half that waits for its other half is logged
	maxUnclaimed = 64               // sends of one peer, without a receive here, that a report has
)

// A Report says what the transfers of a process wait for. [Join] compares those of several processes.
type Report struct {
	Life      serry.Life
	Waiting   []Waiting   // that have not ended; the oldest first
	Unclaimed []Unclaimed // sends of peers that no receive was posted for; at most 64 of each peer
	Omitted   int         // halves that there was no room for, the youngest
}

// A Waiting is a half of a transfer that has not ended.
type Waiting struct {
	Send        bool
	Key         Key
	Src, Dst    serry.DeviceID
	Peer        serry.Life
	Done, Bytes int64
	Age         time.Duration // since it was posted

	For  string        // what it waits for
	Self bool          // that is up to this process, not to the peer
	Long time.Duration // how long it has waited for that
}

// String is one line.
func (w Waiting) String() string {
	whom := w.Peer.Task.String()
	if w.Self {
		whom = "this process"
	}
	return fmt.Sprintf("%s, %d of %d bytes: waits for %s: %s, for %v", w.name(), w.Done, w.Bytes, whom, w.For, w.Long.Round(time.Millisecond))
}

// name is "send 7 (device 0 to 1)".
func (w Waiting) name() string {
	verb := "receive"
	if w.Send {
		verb = "send"
	}
	return fmt.Sprintf("%s %v (device %d to %d)", verb, w.Key, w.Src, w.Dst)
}

// An Unclaimed is a send of a peer that no receive was posted for.
type Unclaimed struct {
	Key      Key
	Src, Dst serry.DeviceID
	Peer     serry.Life
	Shape    string // what is sent
	Age      time.Duration
}

// Why says what the transfers of this process wait for.
func (e *Engine) Why() Report {
	r := Report{Life: e.life}
	for _, p := range e.allPeers() {
		p.inquire(func() { p.why(&r) })
	}
	slices.SortStableFunc(r.Waiting, func(a, b Waiting) int { return cmp.Compare(b.Age, a.Age) })
	return r
}

// testify is the report as JSON, in at most so many bytes: the oldest halves that fit. A service asks for it.
func (e *Engine) testify(_ context.Context, _ string, most int) []byte {
	r := e.Why()
	for {
		text, err := json.Marshal(r)
		if err != nil {
			e.log.Warn("report of transfers not written", "err", err)
			return nil
		}
		keep := len(r.Waiting) / 2
		switch {
		case len(text) <= most:
			return text
		case len(r.Waiting)+len(r.Unclaimed) == 0:
			return nil
		}
		r.Omitted += len(r.Waiting) - keep
		r.Waiting, r.Unclaimed = r.Waiting[:keep], nil
	}
}

// inquire does something on the goroutine of the peer, and waits for it, unless the peer is closed.
func (p *peer) inquire(f func()) {
	done := make(chan struct{})
	if p.try(func() { f(); close(done) }) {
		<-done
	}
}

// why adds what the transfers with a peer wait for.
func (p *peer) why(r *Report) {
	now := p.now()
	for _, w := range p.machine.Waits() {
		r.Waiting = append(r.Waiting, p.ops[w.Ref].why(w, now))
	}
	for _, o := range p.backlog {
		if o.waiting {
			r.Waiting = append(r.Waiting, o.asWaiting("other transfers of this process, to end", true, o.posted, now))
		}
	}
	for _, u := range p.machine.Unclaimed(maxUnclaimed) {
		r.Unclaimed = append(r.Unclaimed, Unclaimed{
			Key: Key{u.ID.Namespace, u.ID.Key}, Src: u.ID.Src, Dst: u.ID.Dst, Peer: p.life, Shape: u.Shape.Text, Age: now - u.Since,
		})
	}
}

func (o *operation) why(w match.Wait, now match.Time) Waiting {
	if o.request != nil && !w.Paired {
		w.For = fmt.Sprintf("offer %d", o.request.offer)
	}
	return o.asWaiting(w.For, w.Self, w.Since, now)
}

func (o *operation) asWaiting(what string, self bool, since, now match.Time) Waiting {
	return Waiting{
		Send: o.send, Key: o.op.Key, Src: o.op.Src, Dst: o.op.Dst, Peer: o.peer.life, Done: o.moved.Load(), Bytes: o.Shape.Bytes,
		Age: now - o.posted, For: what, Self: self, Long: now - since,
	}
}

// watchWaits logs halves that have waited for their other halves for long, once each (TR-ORD-9).
func (p *peer) watchWaits() {
	p.watching = false
	now := p.now()
	for _, w := range p.machine.Waits() {
		o := p.ops[w.Ref]
		if w.Paired || w.Self || o.reported || now-w.Since < reportAfter {
			continue
		}
		o.reported = true
		p.engine.log.Warn("transfer waits for its other half", "peer", p.life.Task, "incarnation", p.life.Incarnation,
			"key", o.op.Key.String(), "send", o.send, "waits", w.For, "instead", p.instead())
	}
	p.watchLater()
}

// watchLater looks at the transfers again after a while, if there are any.
func (p *peer) watchLater() {
	if !p.watching && len(p.ops) > 0 {
		p.watching = true
		time.AfterFunc(reportAfter, func() { p.do(p.watchWaits) })
	}
}

// instead says in a few words what the peer has posted that no receive is there for.
func (p *peer) instead() string {
	var list []string
	for _, u := range p.machine.Unclaimed(3) {
		list = append(list, u.ID.String())
	}
	return strings.Join(list, "; ")
}

// A Finding is a transfer that has not ended, with what both sides say of it.
type Finding struct {
	Key      Key
	Src, Dst serry.DeviceID
	From, To serry.Life    // the processes of the two halves
	Send     *Waiting      // what the sender says, or nil
	Receive  *Waiting      // what the receiver says, or nil
	Blame    serry.TaskID  // that the transfer waits for
	Age      time.Duration // of the older half
	Long     time.Duration // how long the half has waited that says what for
	Why      string        // what that process has to do, or does: "it has not posted the receive"
	Text     string
}

// Join compares the reports of processes: for each transfer that has not ended it says which process it waits for, and why. The
// oldest come first.
func Join(reports []Report) []Finding {
	j := joiner{reports: make(map[serry.Life]*Report), found: make(map[pairing]*Finding)}
	for i := range reports {
		j.reports[reports[i].Life] = &reports[i]
	}
	for i := range reports {
		for w := range reports[i].Waiting {
			j.add(reports[i].Life, &reports[i].Waiting[w])
		}
	}
	var list []Finding
	for _, at := range j.order {
		f := j.found[at]
		j.explain(f)
		list = append(list, *f)
	}
	slices.SortStableFunc(list, func(a, b Finding) int { return cmp.Compare(b.Age, a.Age) })
	return list
}

// A pairing names a transfer in all processes.
type pairing struct {
	key      Key
	src, dst serry.DeviceID
	from, to serry.Life
}

type joiner struct {
	reports map[serry.Life]*Report
	found   map[pairing]*Finding
	order   []pairing // as they were found
}

// add adds what one side says.
func (j *joiner) add(life serry.Life, w *Waiting) {
	at := pairing{w.Key, w.Src, w.Dst, w.Peer, life}
	if w.Send {
		at.from, at.to = life, w.Peer
	}
	f := j.found[at]
	if f == nil {
		f = &Finding{Key: w.Key, Src: w.Src, Dst: w.Dst, From: at.from, To: at.to}
		j.found[at] = f
		j.order = append(j.order, at)
	}
	f.Age = max(f.Age, w.Age)
	if w.Send {
		f.Send = w
	} else {
		f.Receive = w
	}
}

// explain says which process a transfer waits for.
func (j *joiner) explain(f *Finding) {
	switch {
	case f.Send == nil || f.Receive == nil:
		j.explainHalf(f)
	case f.Receive.Self:
		f.blame(f.To, f.Receive, f.Receive.For)
	case f.Send.Self:
		f.blame(f.From, f.Send, f.Send.For)
	default:
		f.blame(f.Receive.Peer, f.Receive, f.Receive.For)
	}
}

// blame says that a transfer waits for a process, by what one half says.
func (f *Finding) blame(life serry.Life, half *Waiting, why string) {
	f.Blame, f.Long, f.Why = life.Task, half.Long, why
	f.Text = fmt.Sprintf("transfer %v (device %d to %d) waits for %v: %s", f.Key, f.Src, f.Dst, life.Task, why)
}

// explainHalf is explain for a transfer that one of the two processes does not speak of.
func (j *joiner) explainHalf(f *Finding) {
	half, other, verb := f.Send, f.To, "receive"
	if half == nil {
		half, other, verb = f.Receive, f.From, "send"
	}
	if half.Self {
		f.blame(half.self(f), half, half.For)
		return
	}
	r := j.reports[other]
	switch {
	case r == nil:
		f.blame(other, half, half.For+"; it has not told what it waits for")
	default:
		f.blame(other, half, fmt.Sprintf("it has not posted the %s%s", verb, r.instead(half.self(f))))
	}
}

// self is the process that a half is of.
func (w *Waiting) self(f *Finding) serry.Life {
	if w.Send {
		return f.From
	}
	return f.To
}

// instead says what a process has posted with another one.
func (r *Report) instead(peer serry.Life) string {
	var list []string
	for _, w := range r.Waiting {
		if w.Peer == peer && len(list) < 3 {
			list = append(list, w.name())
		}
	}
	if len(list) == 0 {
		return ", nor anything else"
	}
	return "; it has posted " + strings.Join(list, ", ")
}
