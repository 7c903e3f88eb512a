// Package faultyetcd puts faults between a store and a real etcd: requests that are slow, lost, answered
// and not heard of, performed late or twice, refused for want of space; history that is dropped under a
// reader; and the crash of a client right after a request was performed. Tests only.
//
// A [Link] is the way of one client to etcd. Each request is numbered, and a [Plan] says what happens to
// it. A plan that [Seeded] makes repeats itself for the same requests in the same order, so a schedule in
// which one client has one request under way at a time is replayed by its seed.
//
// A fleet uses it so:
//
//	m, _ := member.Start(ctx, member.Config{Name: "a", Peers: ..., Dir: dir}) // one real etcd for the fleet
//	link := faultyetcd.New(faultyetcd.Seeded(seed, faultyetcd.Rates{NoReply: 20, Late: 10}))
//	client, _ := link.Dial("unix:" + dir + "/client.sock")                    // one link for each server
//	st, _ := etcd.Open(ctx, etcd.Config{Client: client, LeaseTTL: time.Second})
//
// and gives st to a node. When the plan says [Crash], [Link.Crashed] is closed, and from then on each
// request of that client fails at once: the fleet closes its node and store, and starts another on a new
// link. [Link.Deliver] performs what is still on its way, which is worth doing when the next server leads,
// and before the client of the link is closed.
// [Link.Plan] with nil ends all faults, for the last look at the state. etcd runs in real time, so a fleet on it
// does not run in a bubble.
package faultyetcd

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A Fault is what happens to a request.
type Fault uint8

// The faults. Those that concern writes only leave reads alone.
const (
	None     Fault = iota
	Slow           // it is performed after [SlowTime]
	Lost           // it is not performed, and its sender gets no answer
	NoReply        // it is performed, and its sender gets no answer
	Late           // its sender gets no answer, and it is performed after later requests (writes)
	Twice          // it is performed, and once more after later requests (writes)
	NoSpace        // etcd refuses it because its quota is reached (writes that put something)
	FullDone       // it is performed, and etcd says nevertheless that its quota is reached, as etcd may
	Compact        // etcd drops all its history first
	Crash          // it is performed, and its sender has crashed: no later request is sent
	faults
)

// SlowTime is how long a slow request takes longer.
const SlowTime = 20 * time.Millisecond

// longestLate is how many later requests overtake one at most.
const longestLate = 40

// A Request is what a plan decides on.
type Request struct {
	N      int      // the first is 0
	Method string   // "Txn", "Range", "LeaseGrant", ...
	Puts   []string // keys that it would put
	Write  bool     // it would change something
}

// A Plan says what happens to a request. after is by how many requests one that is late is overtaken. It
// is called for one request at a time.
type Plan func(Request) (f Fault, after int)

// Rates say how many of a thousand requests have a fault, by [Fault].
type Rates struct {
	Slow, Lost, NoReply, Late, Twice, NoSpace, FullDone, Compact, Crash int
}

// Seeded draws faults at random.
func Seeded(seed uint64, r Rates) Plan {
	random := rand.New(rand.NewPCG(seed, 0))
	rates := [faults]int{
		Slow: r.Slow, Lost: r.Lost, NoReply: r.NoReply, Late: r.Late, Twice: r.Twice, NoSpace: r.NoSpace,
		FullDone: r.FullDone, Compact: r.Compact, Crash: r.Crash,
	}
	return func(Request) (Fault, int) {
		drawn, after := random.IntN(1000), 1+random.IntN(longestLate)
		for f, rate := range rates {
			if drawn -= rate; drawn < 0 {
				return Fault(f), after
			}
		}
		return None, after
	}
}

// A Link is the way of one client to etcd.
type Link struct {
	crashed chan struct{}

	mu struct {
		sync.Mutex
		plan    Plan // nil when all is calm
		n       int
		dead    bool
		pending []pending
		counts  [faults]int
	}
}

// pending is a request on its way.
type pending struct {
	due     int // the number of the request before which it arrives
	perform func(context.Context)
}

// New makes a link. A nil plan has no faults.
func New(plan Plan) *Link {
	l := &Link{crashed: make(chan struct{})}
	l.mu.plan = plan
	return l
}

// Dial makes a client whose requests take this link.
func (l *Link) Dial(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:   []string{endpoint},
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.intercept)},
	})
}

// Crashed is closed when the client has crashed.
func (l *Link) Crashed() <-chan struct{} { return l.crashed }

// Crash does what the fault does, between two requests.
func (l *Link) Crash() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.dead {
		l.mu.dead = true
		close(l.crashed)
	}
}

// Plan makes a plan the one for all later requests. A nil plan has no faults.
func (l *Link) Plan(plan Plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.plan = plan
}

// Deliver performs all requests that are on their way.
func (l *Link) Deliver(ctx context.Context) {
	l.mu.Lock()
	all := l.mu.pending
	l.mu.pending = nil
	l.mu.Unlock()
	for _, p := range all {
		p.perform(ctx)
	}
}

// Count says how many requests had a fault.
func (l *Link) Count(f Fault) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.counts[f]
}

var (
	errNoAnswer = status.Error(codes.Unavailable, "faultyetcd: no answer")
	errCrashed  = status.Error(codes.Aborted, "faultyetcd: the client has crashed")
)

// intercept is a gRPC interceptor.
func (l *Link) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if ctx.Value(aside{}) != nil {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	message := req.(proto.Message)
	perform := func(ctx context.Context, reply any) error { return invoke(ctx, method, req, reply, cc, opts...) }
	kind := reply.(proto.Message).ProtoReflect().Type()
	again := func(ctx context.Context) { // without reply and options, which belong to a caller that is gone
		_ = invoke(ctx, method, req, kind.New().Interface(), cc)
	}
	f, due, err := l.decide(method, message, again)
	for _, p := range due {
		p.perform(context.WithoutCancel(ctx))
	}
	if err != nil {
		return err
	}
	switch f {
	case Slow:
		select {
		case <-time.After(SlowTime):
		case <-ctx.Done():
			return ctx.Err()
		}
	case Lost, Late:
		return errNoAnswer
	case NoSpace:
		return rpctypes.ErrGRPCNoSpace
	case Compact:
		compactAll(ctx, cc)
	case NoReply:
		_ = perform(context.WithoutCancel(ctx), reply)
		return errNoAnswer
	case FullDone:
		if err := perform(ctx, reply); err != nil {
			return err
		}
		return rpctypes.ErrGRPCNoSpace
	case Crash:
		_ = perform(context.WithoutCancel(ctx), reply)
		return errCrashed
	}
	return perform(ctx, reply)
}

// decide asks the plan, and takes out what has fallen due.
func (l *Link) decide(method string, message proto.Message, again func(context.Context)) (f Fault, due []pending, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.dead {
		return None, nil, errCrashed
	}
	r := request(l.mu.n, method, message)
	l.mu.n++
	var after int
	if l.mu.plan != nil {
		f, after = l.mu.plan(r)
	}
	if f.ofWrites() && !r.Write || f.ofPuts() && len(r.Puts) == 0 {
		f = None
	}
	rest := l.mu.pending[:0:0]
	for _, p := range l.mu.pending {
		if p.due <= r.N {
			due = append(due, p)
		} else {
			rest = append(rest, p)
		}
	}
	l.mu.pending = rest
	switch f {
	case Late, Twice:
		l.mu.pending = append(l.mu.pending, pending{r.N + after, again})
	case Crash:
		l.mu.dead = true
		close(l.crashed)
	}
	l.mu.counts[f]++
	return f, due, nil
}

func (f Fault) ofWrites() bool { return f == Late || f == Twice || f == Crash }

func (f Fault) ofPuts() bool { return f == NoSpace || f == FullDone }

// request describes a message.
func request(n int, method string, message proto.Message) Request {
	r := Request{N: n, Method: method[strings.LastIndexByte(method, '/')+1:]}
	switch m := message.(type) {
	case *etcdserverpb.TxnRequest:
		for _, op := range m.Success {
			if put := op.GetRequestPut(); put != nil {
				r.Puts, r.Write = append(r.Puts, string(put.Key)), true
			}
			r.Write = r.Write || op.GetRequestDeleteRange() != nil
		}
	case *etcdserverpb.PutRequest:
		r.Puts, r.Write = []string{string(m.Key)}, true
	case *etcdserverpb.LeaseGrantRequest, *etcdserverpb.LeaseRevokeRequest, *etcdserverpb.DeleteRangeRequest, *etcdserverpb.CompactionRequest:
		r.Write = true
	}
	return r
}

// aside marks requests of the link itself, which have no faults.
type aside struct{}

// compactAll drops the history of etcd. That it cannot be dropped now is no matter.
func compactAll(ctx context.Context, cc *grpc.ClientConn) {
	ctx = context.WithValue(ctx, aside{}, true)
	kv := etcdserverpb.NewKVClient(cc)
	now, err := kv.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("x"), CountOnly: true})
	if err == nil {
		_, _ = kv.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: now.Header.Revision})
	}
}
