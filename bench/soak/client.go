package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/bench/internal/agent"
	"github.com/serry-dev/serry/internal/lab/history"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A client is one task of the job. Three loops work at the same time, as threads of a real process do:
// one for keys, one for barriers, one for live sets. Each has its own records.
type client struct {
	// Set in newClient, then constant.
	job    *clients
	agent  *agent.Agent
	task   int
	life   uint64
	group  int
	peers  []int32 // of the group, itself among them
	random *rand.Rand

	// Owned by keyLoop, later by auditAll.
	keys       []history.KeyCall
	generation int
	written    int
	once       map[int]map[string]string // by generation: own keys, and what was acknowledged
	lost       []string                  // what was acknowledged and is not there

	barrierCalls []history.BarrierCall // owned by barrierLoop
	liveCalls    []history.RoundCall   // owned by liveLoop
	sights       []history.Sight       // owned by wait

	mu     sync.Mutex
	stalls []time.Duration // guarded by mu: the longest call that ended after each disturbance, before the next
}

func newClient(c *clients, a *agent.Agent, life, seed uint64) *client {
	group := a.Task() % c.groups
	return &client{
		job: c, agent: a, task: a.Task(), life: life, group: group, peers: c.members(group),
		random: rand.New(rand.NewPCG(seed, uint64(a.Task()))), once: make(map[int]map[string]string),
	}
}

// call makes a call and notes how long it took. Every failure counts: behind a relay there is none.
func (c *client) call(ctx context.Context, method string, request, reply proto.Message) (history.Span, error) {
	span := history.Span{Call: c.job.clock.Now()}
	start := time.Now()
	err := c.agent.Call(ctx, method, request, reply)
	took := time.Since(start)
	if err != nil {
		return span, err
	}
	span.Return = c.job.clock.Now()
	c.job.calls.Add(1)
	c.noteStall(c.job.disturbed(), took)
	return span, nil
}

// noteStall counts a call for the disturbance it ended after, by number; before the first there is nothing to
// stall.
func (c *client) noteStall(number int, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.stalls) <= number {
		c.stalls = append(c.stalls, 0)
	}
	c.stalls[number] = max(c.stalls[number], took)
}

// fail notes a call without the answer it should have had, and ends the work: with a client dead, or a
// step that it cannot make, the job does not go on as it should.
func (c *client) fail(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return // the end of everything, not of this call
	}
	err = fmt.Errorf("client %d: %s: %w", c.task, what, err)
	c.job.complain(what, err)
	c.job.giveUp(err)
}

// pause waits about d, and says whether to go on.
func (c *client) pause(working context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-working.Done():
		return false
	}
}

const (
	barrierPause = 250 * time.Millisecond
	livePause    = time.Second
)

// The ids of barriers: the same again and again.
const (
	allBarrier   = "soak"
	groupBarrier = "soak/group"
)

// barrierLoop meets all clients, then those of its group, and so on.
func (c *client) barrierLoop(ctx, working context.Context) {
	everybody := make([]int, len(c.job.all))
	for i := range everybody {
		everybody[i] = i
	}
	own := make([]int, len(c.peers))
	for i, p := range c.peers {
		own[i] = int(p)
	}
	next := make(map[string]int64) // by id: the counter of the next instance (A-BAR-1)
	for round := 0; c.job.barriers.begin(round); round++ {
		id, tasks, members := allBarrier, []int32(nil), everybody
		if round%2 == 1 {
			id, tasks, members = fmt.Sprintf("%s-%d", groupBarrier, c.group), c.peers, own
		}
		note := history.BarrierCall{ID: id, Instance: next[id], Members: members, Member: c.task, Life: c.life}
		var reply xlapb.BarrierResponse
		var err error
		note.Span, err = c.call(ctx, xlapb.CoordinationService_Barrier_FullMethodName, &xlapb.BarrierRequest{
			Incarnations: c.agent.Incarnations(), SourceTaskId: int32(c.task), BarrierId: id, TaskIds: tasks,
			BarrierTimeoutInMs: patience.Milliseconds(), Counter: next[id],
		}, &reply)
		note.Passed, note.Counter = err == nil, reply.GetCounter()
		c.barrierCalls = append(c.barrierCalls, note)
		if err != nil {
			c.fail(ctx, "barrier", err)
			return
		}
		next[id] = reply.GetCounter() + 1
		c.pause(working, barrierPause)
	}
}

// liveLoop asks which members of its group are alive.
func (c *client) liveLoop(ctx, working context.Context) {
	set := fmt.Sprintf("group-%d", c.group)
	for round := 0; c.job.liveSets[c.group].begin(round); round++ {
		note := history.RoundCall{Member: c.task, Life: c.life, Of: set}
		var reply xlapb.GetAliveTasksResponse
		var err error
		note.Span, err = c.call(ctx, xlapb.CoordinationService_GetAliveTasks_FullMethodName, &xlapb.GetAliveTasksRequest{
			Incarnations: c.agent.Incarnations(), RequestingTaskId: int32(c.task), TaskIds: c.peers,
		}, &reply)
		if err == nil && (len(reply.GetAliveTaskIds()) != len(c.peers) || len(reply.GetIncarnations()) != len(c.peers)) {
			err = fmt.Errorf("%v are alive; want all of %v", reply.GetAliveTaskIds(), c.peers)
		}
		if err == nil {
			for i, id := range reply.GetAliveTaskIds() {
				note.Alive = append(note.Alive, history.LiveMember{Member: int(id), Life: reply.GetIncarnations()[i]})
			}
		}
		c.liveCalls = append(c.liveCalls, note)
		if err != nil {
			c.fail(ctx, "live set", err)
			return
		}
		c.pause(working, livePause)
	}
}

// wait holds the calls that a real client always has open, and watches over its life: a get of a key
// that no client sets, and a watch of the tasks.
func (c *client) wait(ctx, working context.Context) {
	holding, release := context.WithCancel(working)
	defer release()
	var wg sync.WaitGroup
	wg.Go(func() {
		err := c.agent.Call(holding, xlapb.CoordinationService_GetKeyValue_FullMethodName,
			&xlapb.GetKeyValueRequest{Incarnations: c.agent.Incarnations(), Key: "RECEIVED_PREEMPTION_NOTICE"}, new(xlapb.GetKeyValueResponse))
		if holding.Err() == nil {
			c.fail(ctx, "preemption notice", fmt.Errorf("answered: %v", err))
		}
	})
	wg.Go(func() { c.watchLoop(ctx, holding) })
	select {
	case <-working.Done():
	case <-ctx.Done():
	case <-c.agent.Dead():
		_, why := c.agent.Death()
		c.job.dead.Add(1)
		c.fail(ctx, "died", why)
	}
	release()
	wg.Wait()
}

// watchLoop watches the states of all tasks; each answer must be newer than the last.
func (c *client) watchLoop(ctx, holding context.Context) {
	version := int64(-1)
	for holding.Err() == nil {
		var reply xlapb.WatchTasksResponse
		sight := history.Sight{Span: history.Span{Call: c.job.clock.Now()}, Client: c.task}
		err := c.agent.Call(holding, xlapb.CoordinationService_WatchTasks_FullMethodName,
			&xlapb.WatchTasksRequest{Incarnations: c.agent.Incarnations(), VersionNumber: version}, &reply)
		if holding.Err() != nil {
			return
		}
		if err != nil {
			c.fail(ctx, "watch", err)
			return
		}
		version = reply.GetVersionNumber()
		sight.Return, sight.Version = c.job.clock.Now(), version
		c.sights = append(c.sights, sight)
	}
}
