package server

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/goodput"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/wire/stream"
)

// Config is what a server is told once. Only Cluster.Jobs must be given.
type Config struct {
	// Cluster describes the job. If its Service is zero, New draws one. Its HeartbeatTimeout is
	// how long a task may be silent, too; zero means DefaultHeartbeatTimeout.
	Cluster coord.Config

	// HeartbeatSlack is added to the heartbeat timeout before silence counts, because some clients
	// beat only once a timeout (C-HB-9). Zero means the larger of 2 s and 5 %, negative none.
	HeartbeatSlack time.Duration

	// LostGrace is how long a task whose last connection has closed may take to come back on
	// another before it counts as lost (C-LOST-4). Zero means 100 ms, negative none.
	LostGrace time.Duration

	TLS *tls.Config // nil serves plain HTTP/2 (C-WIRE-12)

	// TaskURI binds tasks to certificates: with spiffe://example.org/{job}/{task} a client that calls as
	// task 3 of job worker must show one with the URI name spiffe://example.org/worker/3 (A-TLS-10). Empty:
	// any client may be any task.
	TaskURI string

	// Journal is where the service writes down what it does before any client hears of it, and whose past
	// it goes on with (C-LOG); nil keeps all in memory. The server does not resign from it.
	Journal store.Reign

	// SnapshotBytes is how much is added to the journal, at least, before a snapshot takes its place; it is
	// never less than twice the snapshot. Zero means DefaultSnapshotBytes.
	SnapshotBytes int

	// Term is that of the leadership, which replies on serry's own stream carry (C-TERM-1), and Store the
	// one within which terms are compared. Zero means those of Journal; without one, a new store.
	Term  uint64
	Store serry.StoreID

	// Address is where clients reach this server, for people to read where a service has several. Empty: it is the
	// only one.
	Address string

	// Former is the address of the server that led before, and FormerLost when that was found to be gone; zero: it has handed
	// over. Empty: there was none. People read it.
	Former     string
	FormerLost time.Time

	// StreamVersion stands for another build in tests: see [stream.ServerConfig].
	StreamVersion stream.Version

	// Stoppable lets people end the service by wire.LeadMethod; [Server.StopAsked] then says so.
	Stoppable bool

	// Account is that of the job, if an earlier server has begun it; the server then goes on with it, and no other
	// goroutine may use it until the server has ended. Nil begins one. It is for people, and is not journaled.
	Account *goodput.Account

	// Planted are faults that a test plants to see that other tests find them; none in a product.
	Planted plant.Faults

	Limits Limits       // of the server; those of the machine are in Cluster
	Log    *slog.Logger // nil is silent
}

// Limits bound what clients can make the server keep, beside what the machine keeps. Zero means
// the default. A call beyond one is answered RESOURCE_EXHAUSTED, but never a registration, a
// heartbeat, an error poll or a shutdown: for a client that would be death (C-LIM-1).
type Limits struct {
	// Connections that are open. Calls on further ones are refused; the connections themselves are not,
	// because a stock client that is refused dies.
	Connections int

	// CallsWaiting is how many calls of one connection may wait for an answer.
	CallsWaiting int

	// WaitingBytes bounds the requests of calls of one connection that wait, AllWaitingBytes those of all
	// connections. A get or a watch holds its key for as long as it waits, and a key may be large.
	WaitingBytes    int64
	AllWaitingBytes int64

	// QueueEvents and QueueBytes bound the calls that the owner has not stepped, and the bytes of their
	// requests. Only a journal that stands still lets so many gather.
	QueueEvents int
	QueueBytes  int64

	// StrangerBytes bounds, for all connections together that carry no life of a task: requests that are not
	// complete, requests in the queue, and requests of calls that wait, each. A request may be larger, if it
	// is alone. So what reaches the port and is no part of the job cannot make the server large (SEC-102).
	StrangerBytes int64
}

// DefaultLimits are limits that real jobs never meet.
func DefaultLimits() Limits {
	return Limits{
		Connections:     1 << 18,
		CallsWaiting:    1 << 20,
		WaitingBytes:    64 << 20,
		AllWaitingBytes: 1 << 30,
		QueueEvents:     1 << 18,
		QueueBytes:      8 << 30,
		StrangerBytes:   16 << 20,
	}
}

// What a zero in [Config] means.
const (
	// DefaultHeartbeatTimeout finds a hung process soon, and forgives a few lost heartbeats.
	DefaultHeartbeatTimeout = 10 * time.Second

	// DefaultLostGrace is longer than a client takes that connects again at once, and shorter than a person
	// notices.
	DefaultLostGrace = 100 * time.Millisecond

	// DefaultSnapshotBytes bounds how many records the next server must replay before it can serve: about 100,000, which takes
	// it a few tenths of a second.
	DefaultSnapshotBytes = 16 << 20

	leastSlack    = 2 * time.Second
	slackFraction = 20 // of the heartbeat timeout
)

// Validate says what is wrong with c, if anything.
func (c Config) Validate() error {
	_, err := c.withDefaults()
	return err
}

// withDefaults fills in what is zero and says what is wrong with the rest.
func (c Config) withDefaults() (Config, error) {
	c.Cluster.HeartbeatTimeout = cmp.Or(c.Cluster.HeartbeatTimeout, DefaultHeartbeatTimeout)
	c.Cluster.Service = cmp.Or(c.Cluster.Service, newIncarnation())
	c.HeartbeatSlack = max(0, cmp.Or(c.HeartbeatSlack, defaultSlack(c.Cluster.HeartbeatTimeout)))
	c.LostGrace = max(0, cmp.Or(c.LostGrace, DefaultLostGrace))
	c.SnapshotBytes = cmp.Or(c.SnapshotBytes, DefaultSnapshotBytes)
	c.Limits = c.Limits.withDefaults()
	c.Cluster.Limits.StoreBytes = cmp.Or(c.Cluster.Limits.StoreBytes, defaultStoreBytes(memory()))
	if c.Journal != nil {
		c.Term = cmp.Or(c.Term, c.Journal.Term())
		c.Store = cmp.Or(c.Store, c.Journal.Store())
		// The machine must refuse a value that the store cannot take. If the store refused it, that would be an
		// error of the journal, which ends the server.
		c.Cluster.Limits.ValueBytes = min(valueLimit(c.Cluster.Limits), c.Journal.MaxValue())
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, c.check()
}

// defaultStoreBytes is a quarter of the memory, since keys and values are kept there (SEC-102). A store that holds
// less refuses them by itself, see room. It is a power of two, so that hosts which are nearly alike agree on it: it
// is a setting of the journal.
func defaultStoreBytes(memory int64) int64 {
	most := min(coord.DefaultLimits().StoreBytes, memory/4)
	return 1 << (bits.Len64(uint64(max(1, most))) - 1)
}

// defaultSlack is for clients that beat once a timeout: they may be late by what a network and a busy
// processor take (C-HB-9).
func defaultSlack(timeout time.Duration) time.Duration {
	return max(leastSlack, timeout/slackFraction)
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	return Limits{
		Connections:     cmp.Or(l.Connections, d.Connections),
		CallsWaiting:    cmp.Or(l.CallsWaiting, d.CallsWaiting),
		WaitingBytes:    cmp.Or(l.WaitingBytes, d.WaitingBytes),
		AllWaitingBytes: cmp.Or(l.AllWaitingBytes, d.AllWaitingBytes),
		QueueEvents:     cmp.Or(l.QueueEvents, d.QueueEvents),
		QueueBytes:      cmp.Or(l.QueueBytes, d.QueueBytes),
		StrangerBytes:   cmp.Or(l.StrangerBytes, d.StrangerBytes),
	}
}

// check says what is wrong with a configuration that has its defaults.
func (c Config) check() error {
	if err := c.Cluster.Validate(); err != nil {
		return err
	}
	switch {
	case c.Cluster.HeartbeatTimeout < time.Millisecond:
		return fmt.Errorf("heartbeat timeout %v: want at least 1ms", c.Cluster.HeartbeatTimeout)
	case c.Cluster.RegisterBarrier && c.Cluster.RegisterTimeout <= 0:
		return fmt.Errorf("register timeout %v: want more than 0 with a register barrier", c.Cluster.RegisterTimeout)
	case c.Cluster.ShutdownTimeout < 0:
		return fmt.Errorf("shutdown timeout %v: want 0 (no shutdown barrier) or more", c.Cluster.ShutdownTimeout)
	case slices.Min([]int64{int64(c.Limits.Connections), int64(c.Limits.CallsWaiting), c.Limits.WaitingBytes, c.Limits.AllWaitingBytes, int64(c.Limits.QueueEvents), c.Limits.QueueBytes, c.Limits.StrangerBytes}) < 0:
		return errors.New("a limit is below 0")
	}
	return c.checkTaskURI()
}
