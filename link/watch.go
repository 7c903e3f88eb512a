package link

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/serry-dev/serry"
)

const (
	reportTime = 5 * time.Second // of a call of the service that no caller waits for
	maxOver    = 32768           // lives that are remembered as replaced
)

var errSilence = errors.New("silent")

// watch follows what the service knows of all tasks, until the net or the member ends.
func (n *Net) watch() {
	for snapshot, err := range n.member.Watch(n.ctx) {
		if err != nil {
			n.log.Debug("links are not told of tasks", "err", err)
			return
		}
		n.update(snapshot)
	}
}

// update takes a new picture of all tasks: links to lives that are over go down (CL-TRN-6).
func (n *Net) update(s serry.Snapshot) {
	n.mu.Lock()
	before := n.mu.tasks
	n.mu.tasks = make(map[serry.TaskID]serry.TaskInfo, len(s.Tasks))
	for _, t := range s.Tasks {
		n.mu.tasks[t.Task] = t
	}
	var over []serry.Life
	for task, was := range before {
		if now := n.mu.tasks[task]; was.State == serry.Connected && (now.State != serry.Connected || now.Incarnation != was.Incarnation) {
			over = append(over, serry.Life{Task: task, Incarnation: was.Incarnation})
		}
	}
	n.retire(over)
	var down []*Link
	for peer, l := range n.mu.links {
		if n.lossOf(peer) != nil {
			down = append(down, l)
		}
	}
	close(n.mu.changed)
	n.mu.changed = make(chan struct{})
	lowest := n.lowest()
	n.mu.Unlock()

	for _, l := range down {
		n.lose(l)
	}
	if lowest {
		n.sweep(over)
	}
}

// retire remembers that lives are over; mu is held.
func (n *Net) retire(lives []serry.Life) {
	for _, life := range lives {
		delete(n.mu.known, life)
		for old := range n.mu.over {
			if len(n.mu.over) < maxOver {
				break
			}
			delete(n.mu.over, old)
		}
		n.mu.over[life] = true
	}
}

// lowest says whether this is the lowest connected task, which cleans up behind others; mu is held.
func (n *Net) lowest() bool {
	for task, t := range n.mu.tasks {
		if t.State == serry.Connected && task.Compare(n.life.Task) < 0 {
			return false
		}
	}
	return true
}

// sweep deletes the addresses of lives that are over: they cannot do so themselves.
func (n *Net) sweep(lives []serry.Life) {
	for _, life := range lives {
		if life == n.life {
			continue
		}
		n.background(func(ctx context.Context) {
			if err := n.keys.Delete(ctx, AddressKey(life)); err != nil {
				n.log.Debug("addresses of a lost task not deleted", "task", life.Task, "err", err)
			}
		})
	}
}

// background runs a call of the service that no caller waits for.
func (n *Net) background(call func(context.Context)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.closed {
		return
	}
	n.work.Go(func() {
		ctx, cancel := context.WithTimeout(n.ctx, reportTime)
		defer cancel()
		call(ctx)
	})
}

// lossOf is why the service holds a life for lost, or nil; mu is held.
func (n *Net) lossOf(peer serry.Life) *LossError {
	t, known := n.mu.tasks[peer.Task]
	switch {
	case n.mu.over[peer] && t.Incarnation != peer.Incarnation:
		return &LossError{Peer: peer, Source: FromService, Reason: serry.ErrStale, Err: ErrPeerFailed}
	case !known || t.Incarnation != peer.Incarnation || t.State == serry.Connected:
		return nil
	case t.State == serry.Disconnected:
		return &LossError{Peer: peer, Source: FromService, Reason: serry.ErrLeft, Err: ErrPeerFailed}
	}
	loss := &LossError{Peer: peer, Source: FromService, Reason: t.Err, Err: ErrPeerFailed}
	if t.Err == nil {
		loss.Reason = serry.ErrTaskDead
	}
	if exited(t.Err) {
		loss.Source = FromLauncher
	}
	return loss
}

// exited says whether a task failed because a launcher or a relay saw its process end.
func exited(err error) bool {
	t, ok := errors.AsType[*serry.TaskError](err)
	return ok && strings.HasPrefix(t.Evidence, "process exited: ")
}

var errExited = errors.New("process exited")

// exited takes down a link whose peer is a process of this host that has ended (CL-TRN-6). The kernel has closed its
// connections, unless a child of it has them, too. What it wrote before is read first, because that may be a goodbye:
// a link that is still up ends as if its connections were closed, or after Timing.Redial.
func (n *Net) exited(l *Link) {
	loss := &LossError{Peer: l.peer, Source: FromLink, Reason: errExited, Err: ErrPeerFailed}
	n.emit(Event{Kind: PeerExit, Peer: l.peer, Err: loss})
	n.suspect(l.peer, true, "process exited, as seen on its host")
	if l.breaks() {
		l.end(loss)
		return
	}
	time.AfterFunc(n.timing.Redial, func() { l.end(loss) })
}

// breaks says whether the connections are closed, and it is being found out why.
func (l *Link) breaks() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.state == breaking
}

// lose takes a link down because the service says that its peer is over.
func (n *Net) lose(l *Link) {
	n.mu.Lock()
	loss := n.lossOf(l.peer)
	n.mu.Unlock()
	if loss == nil {
		return
	}
	if loss.Source == FromLauncher {
		n.emit(Event{Kind: PeerExit, Peer: l.peer, Err: loss})
	}
	l.end(loss)
}

// current says whether a life that dials is one that the service knows, and no newer one. Of a life that it
// does not know yet it waits to hear.
func (n *Net) current(peer serry.Life) bool {
	timer := time.NewTimer(handshakeTime / 2)
	defer timer.Stop()
	for {
		n.mu.Lock()
		t := n.mu.tasks[peer.Task]
		heard, over, changed := n.mu.tasks != nil, n.mu.over[peer], n.mu.changed
		n.mu.Unlock()
		switch {
		case over:
			return false
		case !heard, t.Incarnation == peer.Incarnation:
			return !heard || t.State == serry.Connected
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-n.ctx.Done():
			return false
		}
	}
}

// suspect tells the service what was seen of a peer, where it wants to hear that.
func (n *Net) suspect(peer serry.Life, hard bool, detail string) {
	n.background(func(ctx context.Context) {
		err := n.member.Suspect(ctx, peer.Task, peer.Incarnation, serry.Evidence{Hard: hard, Detail: detail})
		if err != nil {
			n.log.Debug("peer not suspected", "peer", peer.Task, "err", err)
		}
	})
}

// judge finds out why a link broke (CL-TRN-5). It dials the peer once more: a process that is gone refuses, or
// another one answers. If the same life answers, or nothing does in time, the link is to blame.
func (n *Net) judge(l *Link, seen error) error {
	ctx, cancel := context.WithTimeout(n.ctx, n.timing.Redial)
	defer cancel()
	go func() { // the service may know first
		select {
		case <-l.lost:
			cancel()
		case <-ctx.Done():
		}
	}()
	if !errors.Is(seen, errSilence) {
		n.suspect(l.peer, false, fmt.Sprintf("connection lost: %v", seen))
	}
	_, err := n.Link(ctx, l.peer)
	if loss, ok := errors.AsType[*LossError](err); ok && errors.Is(loss, ErrPeerFailed) {
		return loss
	}
	return &LossError{Peer: l.peer, Source: FromLink, Reason: seen, Err: ErrTransport}
}

// final says why a link can never be made, or nil if another attempt may succeed.
func (n *Net) final(peer serry.Life, err error) error {
	n.mu.Lock()
	loss := n.lossOf(peer)
	n.mu.Unlock()
	if loss != nil {
		return loss
	}
	if refused(err) {
		n.suspect(peer, true, "connection refused")
	}
	switch r, ok := errors.AsType[*RefusedError](err); {
	case errors.Is(err, ErrNoSecret), errors.Is(err, ErrNoAddress):
		return err
	case !denied(err):
		return nil
	case ok && r.Code == Replaced: // that says nothing about the peer
		return &LossError{Peer: peer, Source: FromLink, Reason: err, Err: ErrTransport}
	case ok && r.Code != Stale:
		return r
	}
	return &LossError{Peer: peer, Source: FromLink, Reason: err, Err: ErrPeerFailed}
}
