package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/conform"
	"github.com/serry-dev/serry/internal/lab/faultyetcd"
	"github.com/serry-dev/serry/node"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/etcd"
	"github.com/serry-dev/serry/store/member"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A caller is a connection to a server, with one call at a time.
type caller struct {
	server *server.Server
	reign  store.Reign
	last   rpc.CallID
	met    int // barriers passed

	mu      sync.Mutex
	waiting map[rpc.CallID]chan rpc.Status
}

func (c *caller) Reply(call rpc.CallID, _ []byte, st rpc.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[call] <- st // has room
}
func (c *caller) Flush()               {}
func (c *caller) RemoteAddr() net.Addr { return &net.UnixAddr{} }

// serve starts a server of one task on a store, with that task registered.
func serve(t *testing.T, st store.Store) *caller {
	t.Helper()
	r, err := st.Campaign(t.Context(), store.Candidate{Address: "a"})
	if err != nil {
		t.Fatal(err)
	}
	cluster := coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 1}}, HeartbeatTimeout: time.Hour} // it does not beat
	s, err := server.New(server.Config{Cluster: cluster, Journal: r})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c := &caller{server: s, reign: r, waiting: make(map[rpc.CallID]chan rpc.Status)}
	s.Handler().Open(c)
	if st := c.call(t, xlapb.CoordinationService_RegisterTask_FullMethodName, &xlapb.RegisterTaskRequest{Incarnation: 7}); st.Code != codes.OK {
		t.Fatalf("RegisterTask() = %v", st)
	}
	return c
}

// begin sends a call, whose answer comes later.
func (c *caller) begin(t *testing.T, method string, message proto.Message) <-chan rpc.Status {
	t.Helper()
	body, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	c.last++
	answer := make(chan rpc.Status, 1)
	c.mu.Lock()
	c.waiting[c.last] = answer
	c.mu.Unlock()
	c.server.Handler().Serve(c, c.last, method, body)
	c.server.Handler().Served(c)
	return answer
}

// call waits for the answer.
func (c *caller) call(t *testing.T, method string, message proto.Message) rpc.Status {
	t.Helper()
	select {
	case st := <-c.begin(t, method, message):
		return st
	case <-c.server.Done():
		t.Fatalf("the service has ended: %v", c.server.Err())
	case <-t.Context().Done():
	}
	return rpc.Status{}
}

func (c *caller) insert(t *testing.T, key string, size int) rpc.Status {
	t.Helper()
	return c.call(t, xlapb.CoordinationService_InsertKeyValue_FullMethodName,
		&xlapb.InsertKeyValueRequest{AllowOverwrite: true, Kv: &xlapb.KeyValueEntry{Key: key, Value: conform.Bytes(key, size)}})
}

// settled is insert, and again while the file of etcd is too large, until the member has returned the free
// space in it.
func (c *caller) settled(t *testing.T, key string, size int) rpc.Status {
	t.Helper()
	for {
		st := c.insert(t, key, size)
		if st.Code != codes.ResourceExhausted || !strings.Contains(st.Message, "the etcd database is full") {
			return st
		}
		c.meets(t)
	}
}

// lives checks that calls which store nothing are served.
func (c *caller) lives(t *testing.T, key string) {
	t.Helper()
	for method, message := range map[string]proto.Message{
		xlapb.CoordinationService_TryGetKeyValue_FullMethodName: &xlapb.TryGetKeyValueRequest{Key: key},
		xlapb.CoordinationService_Heartbeat_FullMethodName:      &xlapb.HeartbeatRequest{Incarnation: 7},
	} {
		if st := c.call(t, method, message); st.Code != codes.OK {
			t.Errorf("%s = %v %s; want OK", method, st.Code, st.Message)
		}
	}
}

// meets passes a barrier, which the journal has to hold.
func (c *caller) meets(t *testing.T) {
	t.Helper()
	c.met++
	if st := c.call(t, xlapb.CoordinationService_Barrier_FullMethodName, &xlapb.BarrierRequest{
		BarrierId: fmt.Sprint(c.met), BarrierTimeoutInMs: 60_000, Incarnations: &xlapb.Incarnations{TaskIncarnation: 7},
	}); st.Code != codes.OK {
		t.Errorf("Barrier() = %v %s; want OK", st.Code, st.Message)
	}
}

// One client that stores more than the quota holds is refused, and so are others that store something; all
// else goes on, and deletes make room again.
func TestQuota(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "C-LOG-5")
	for name, size := range map[string]int{"large values": 1 << 20, "small values": 50_000} {
		t.Run(name, func(t *testing.T) {
			m, _ := one(t, member.Config{QuotaBytes: 32 << 20})
			st, err := m.Open(t.Context(), etcd.Config{LeaseTTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { st.Close() })
			c := serve(t, st)
			for round := range 3 {
				taken := 0
				for ; ; taken++ {
					st := c.settled(t, fmt.Sprint("dir/", round, "/", taken), size)
					if st.Code == codes.OK {
						continue
					}
					if st.Code != codes.ResourceExhausted || !strings.Contains(st.Message, "room in the store") || !strings.Contains(st.Message, "--quota") {
						t.Fatalf("InsertKeyValue() = %v %s; want RESOURCE_EXHAUSTED that names the limit and what to do", st.Code, st.Message)
					}
					break
				}
				if total := taken * size; total < 4<<20 || total > 16<<20 {
					t.Errorf("round %d: %d bytes were taken; want between an eighth and a half of the quota", round, total)
				}
				c.lives(t, fmt.Sprintf("dir/%d/0", round))
				c.meets(t)
				if st := c.call(t, xlapb.CoordinationService_DeleteKeyValue_FullMethodName, &xlapb.DeleteKeyValueRequest{Key: "dir", IsDirectory: true}); st.Code != codes.OK {
					t.Fatalf("DeleteKeyValue() = %v %s; want OK", st.Code, st.Message)
				}
				for c.insert(t, "again", size).Code != codes.OK { // until the snapshot without them is saved
					c.meets(t)
				}
			}
		})
	}
}

// Values that replace each other do not fill the store, however many there are.
func TestQuotaOverwritten(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "C-LOG-5")
	m, _ := one(t, member.Config{QuotaBytes: 32 << 20})
	st, err := m.Open(t.Context(), etcd.Config{LeaseTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	c := serve(t, st)
	for i := range 30 {
		for { // and again while a snapshot is saved that makes room
			st := c.call(t, xlapb.CoordinationService_InsertKeyValue_FullMethodName, &xlapb.InsertKeyValueRequest{
				AllowOverwrite: true, Kv: &xlapb.KeyValueEntry{Key: "k", Value: conform.Bytes(fmt.Sprint(i), 2<<20)},
			})
			if st.Code == codes.OK {
				break
			}
			if st.Code != codes.ResourceExhausted {
				t.Fatalf("InsertKeyValue(%d) = %v %s; want OK", i, st.Code, st.Message)
			}
			c.meets(t)
		}
	}
	c.lives(t, "k")
}

// alarm tells etcd that a member that does not exist has no space, as if another user had filled it; or that
// it has.
func alarm(t *testing.T, client *clientv3.Client, on bool) {
	t.Helper()
	action := etcdserverpb.AlarmRequest_DEACTIVATE
	if on {
		action = etcdserverpb.AlarmRequest_ACTIVATE
	}
	_, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(),
		&etcdserverpb.AlarmRequest{Action: action, MemberID: 1, Alarm: etcdserverpb.AlarmType_NOSPACE})
	if err != nil {
		t.Fatal(err)
	}
}

// An etcd that others have filled does not end the service: callers that store something are refused, what
// must be written waits, and all goes on when there is room.
func TestQuotaReachedByOthers(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "C-LOG-2")
	_, client := one(t, member.Config{})
	c := serve(t, open(t, etcd.Config{Client: client, LeaseTTL: time.Minute}))
	if st := c.insert(t, "k", 10); st.Code != codes.OK {
		t.Fatalf("InsertKeyValue() = %v %s", st.Code, st.Message)
	}
	for round := range 2 {
		alarm(t, client, true)
		stuck := c.begin(t, xlapb.CoordinationService_InsertKeyValue_FullMethodName,
			&xlapb.InsertKeyValueRequest{Kv: &xlapb.KeyValueEntry{Key: fmt.Sprint("stuck ", round)}})
		for c.reign.(store.Limited).Full() == nil {
			runtime.Gosched()
		}
		if st := c.insert(t, "refused", 10); st.Code != codes.ResourceExhausted ||
			!strings.Contains(st.Message, "the etcd database is full") || !strings.Contains(st.Message, "etcdctl alarm disarm") {
			t.Errorf("InsertKeyValue() = %v %s; want RESOURCE_EXHAUSTED that says what is full, and what to do", st.Code, st.Message)
		}
		var early rpc.Status
		select {
		case early = <-stuck:
			if early.Code != codes.ResourceExhausted {
				t.Errorf("InsertKeyValue() = %v %s, although etcd takes no writes", early.Code, early.Message)
			}
		default:
		}
		alarm(t, client, false)
		if early.Code == codes.OK {
			select {
			case st := <-stuck:
				if st.Code != codes.OK && st.Code != codes.ResourceExhausted {
					t.Errorf("InsertKeyValue() when there is room again = %v %s", st.Code, st.Message)
				}
			case <-c.server.Done():
				t.Fatalf("the service has ended: %v", c.server.Err())
			}
		}
		for c.insert(t, "taken", 10).Code != codes.OK {
			c.lives(t, "k")
		}
		c.meets(t)
	}
}

// A server that starts while etcd is full waits for room, and says so when it gives up.
func TestCampaignWithoutRoom(t *testing.T) {
	lab.Clause(t, "C-LIM-1")
	_, client := one(t, member.Config{})
	alarm(t, client, true)
	st := open(t, etcd.Config{Client: client})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := st.Campaign(ctx, store.Candidate{Address: "a"})
	if full, ok := errors.AsType[*store.FullError](err); !ok || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(full, rpctypes.ErrNoSpace) {
		t.Errorf("Campaign() while etcd is full = %v; want that it was given up, and why", err)
	}
	won := make(chan error, 1)
	go func() {
		_, err := st.Campaign(t.Context(), store.Candidate{Address: "a"})
		won <- err
	}()
	alarm(t, client, false)
	if err := <-won; err != nil {
		t.Errorf("Campaign() = %v, although there is room", err)
	}
}

// A server that waits for room can be ended: one that leads, and one whose leadership begins just then.
func TestEndWithoutRoom(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "C-STOP-4")
	f := newFleet(t, "/serry/", member.Config{})
	client := f.plain
	first := serve(t, open(t, etcd.Config{Client: client, LeaseTTL: time.Minute}))
	begins := make(chan struct{})
	saving := sync.OnceFunc(func() { close(begins) })
	way, err := faultyetcd.New(func(r faultyetcd.Request) (faultyetcd.Fault, int) {
		if len(r.Puts) > 0 && strings.Contains(r.Puts[0], "/blob/") {
			saving()
		}
		return faultyetcd.None, 0
	}).Dial(f.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { way.Close() })
	cfg := server.Config{Cluster: coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 1}}}} // other settings: it has to save them
	st := open(t, etcd.Config{Client: way, LeaseTTL: time.Minute})
	next, err := node.New(node.Config{Store: st, Server: cfg, Address: reserve(t)})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n == 0; n, err = st.Candidates(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	alarm(t, client, true)
	stuck := first.begin(t, xlapb.CoordinationService_InsertKeyValue_FullMethodName,
		&xlapb.InsertKeyValueRequest{Kv: &xlapb.KeyValueEntry{Key: "stuck"}})
	first.server.Close()
	select {
	case st := <-stuck:
		if st.Code == codes.OK {
			t.Error("InsertKeyValue() = OK, although etcd takes no writes")
		}
	default:
	}
	if err := first.reign.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-begins
	next.Shutdown(t.Context())
	if err := next.Err(); err != nil {
		t.Errorf("Err() = %v; want nil", err)
	}
	alarm(t, client, false)
	again := serve(t, open(t, etcd.Config{Client: client, LeaseTTL: time.Minute}))
	again.meets(t)
}
