package relay

import (
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// A watch is one question to the service on behalf of all clients that ask it: which states the tasks have, as
// soon as they differ from those of a version (A-SIDE-17). Ten thousand clients behind relays are then as many
// watches at the service as there are hosts. It is guarded by Relay.mu.
type watch struct {
	key    watchKey
	first  wire.Caller // the client that asked first: the form of the question
	method string

	// The newest list, if known is set.
	known   bool
	version int64
	body    []byte

	call    rpc.CallID // the question that waits at the service, or 0
	waiting []waiting  // calls of clients; some are gone
	live    int        // those that are not
}

// A watchKey tells which questions are the same.
type watchKey struct {
	dialect wire.Dialect
	job     string // as the client writes it
}

// waiting is a call of a client that waits for the next list.
type waiting struct {
	client *client
	call   rpc.CallID
	held   *held
}

func (w waiting) gone() bool { return w.client.calls[w.call] != w.held }

// leave notes that one of the calls is gone, and drops those once they are most of the list.
func (w *watch) leave() {
	if w.live--; len(w.waiting) > 2*w.live+8 {
		w.waiting = slices.DeleteFunc(w.waiting, waiting.gone)
	}
}

// watches are all watches of a relay.
type watches struct {
	of   map[watchKey]*watch
	by   map[rpc.CallID]*watch // by their calls upstream
	last rpc.CallID
}

func newWatches() watches {
	return watches{of: make(map[watchKey]*watch), by: make(map[rpc.CallID]*watch)}
}

// watch answers a watch from the newest list, or lets it wait for the next. It needs Relay.mu.
func (r *Relay) watch(c *client, q request, k *held) (body []byte, done bool, err error) {
	key := watchKey{q.who.Shape.Dialect, q.who.Job}
	w := r.mu.watches.of[key]
	switch {
	case w == nil && len(r.mu.watches.of) >= r.cfg.Limits.Watches:
		return nil, false, &serry.LimitError{Limit: "watches of a relay", Max: int64(r.cfg.Limits.Watches)}
	case w == nil:
		w = &watch{key: key, first: q.who, method: q.method}
		r.mu.watches.of[key] = w
	case w.known && w.version != k.version:
		return w.body, true, nil
	}
	k.watch = w
	c.calls[q.call] = k
	r.mu.held++
	w.waiting = append(w.waiting, waiting{c, q.call, k})
	w.live++
	if w.call == 0 {
		r.ask(w)
	}
	return nil, false, nil
}

// ask sends the question. It needs Relay.mu.
func (r *Relay) ask(w *watch) {
	version := int64(-1)
	if w.known {
		version = w.version
	}
	all := &r.mu.watches
	all.last++
	w.call = all.last
	all.by[w.call] = w
	// It fails only when the relay ends, which answers all calls that wait.
	_ = r.host.Call(stream.Call{
		Conn: r.ownConn, ID: w.call, Method: w.method, Body: w.first.Watch(version, r.mu.outage.service), Vital: true,
	})
}

// seen takes the answer of the service to a watch, and returns what to send. It needs Relay.mu.
func (r *Relay) seen(p stream.Reply) []reply {
	w := r.mu.watches.by[p.Call]
	if w == nil {
		return nil // the relay has taken the question back
	}
	delete(r.mu.watches.by, p.Call)
	w.call = 0
	result, err := w.key.dialect.Result(coord.WatchTasks{}, p.Body)
	picture, _ := result.(*coord.Picture)
	if !p.Status.OK() || err != nil || picture == nil || picture.Version < 0 || w.known && picture.Version == w.version {
		// An error, or a service that has ended: all callers are told so, and the next call asks anew.
		delete(r.mu.watches.of, w.key)
		return r.tell(w, p, func(*held) bool { return true })
	}
	w.known, w.version, w.body = true, picture.Version, p.Body
	replies := r.tell(w, p, func(k *held) bool { return k.version != w.version })
	r.ask(w)
	return replies
}

// tell passes an answer on to the calls that which says yes to.
func (r *Relay) tell(w *watch, p stream.Reply, which func(*held) bool) []reply {
	var replies []reply
	var rest []waiting
	for _, x := range w.waiting {
		switch {
		case x.gone():
		case which(x.held):
			replies = append(replies, reply{x.client.conn, x.call, p.Body, p.Status})
			x.held.watch = nil
			w.live--
			r.finish(x.client, x.call, x.held)
		default:
			rest = append(rest, x)
		}
	}
	w.waiting = rest
	return replies
}

// renew begins all watches anew, for another epoch. It needs Relay.mu.
func (all *watches) renew(r *Relay) {
	for _, w := range all.of {
		all.takeBack(r, w)
		w.known, w.body = false, nil
		if w.live > 0 {
			r.ask(w)
		}
	}
}

// forget drops all watches: no client is left that could ask. It needs Relay.mu.
func (all *watches) forget(r *Relay) {
	for key, w := range all.of {
		all.takeBack(r, w)
		delete(all.of, key)
	}
}

// takeBack cancels the question of a watch.
func (all *watches) takeBack(r *Relay, w *watch) {
	if w.call != 0 {
		r.host.Cancel(r.ownConn, w.call)
		delete(all.by, w.call)
		w.call = 0
	}
}
