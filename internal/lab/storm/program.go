package storm

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/history"
	"github.com/serry-dev/serry/wire/rpc"
)

// program is what the process is there for: steps of work that meet those of the others.
func (p *proc) program() {
	switch p.world.plan.mode {
	case idle:
		p.does("nothing")
		p.pause(p.world.plan.lasts)
		return
	case cliques:
		p.workInCliques()
		return
	}
	if p.number > 0 && p.world.plan.mode == comeback {
		p.rejoin()
	}
	view := p.watchKeys()
	for i := p.first(); i < len(p.world.plan.program) && !p.over(); i = p.next(i) {
		s := p.world.plan.program[i]
		if !p.pause(time.Duration(p.rand.Int64N(int64(p.world.plan.pace) + 1))) {
			return
		}
		p.burst(s.burst)
		p.keys(s.keys)
		p.adds(s.adds)
		p.more(i)
		if s.pass {
			p.pass(i)
		}
		if s.subset && p.task < 2 {
			p.meet("some", []int{0, 1})
		}
		if s.alive {
			p.alive()
		}
		if s.meet {
			p.meet("all", p.world.everybody())
		}
	}
	p.sawAll(view)
}

// first and next say which step is due. Where tasks come back, the barrier counts for all.
func (p *proc) first() int {
	if p.world.plan.mode == comeback {
		return int(p.counters["all"])
	}
	return 0
}

func (p *proc) next(i int) int {
	if p.world.plan.mode == comeback {
		return int(p.counters["all"])
	}
	return i + 1
}

// rejoin arrives at whatever instance is open, which a life does that knows none (C-BAR-19).
func (p *proc) rejoin() { p.meet("all", p.world.everybody()) }

func (w *world) everybody() []int {
	all := make([]int, w.plan.tasks)
	for i := range all {
		all[i] = i
	}
	return all
}

// current notes a success, which a life that was replaced before it asked must not have.
func (p *proc) current(what string, began history.Moment) {
	p.mu.Lock()
	replaced := p.mu.replaced
	p.mu.Unlock()
	if replaced != 0 && replaced < began {
		p.world.amiss("task %d life %d: %s succeeded after another life had registered", p.task, p.life, what)
	}
}

// unsettled says whether a call that was refused may have had its effect all the same: one that was made
// before another life had registered. If its reply was lost with a leader, the relay repeats it, and by
// then its result may have gone with its life (C-INC-2, C-REQ-3).
func (p *proc) unsettled(began history.Moment) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.doomed && (p.mu.replaced == 0 || began < p.mu.replaced)
}

// shared names a key or directory that few tasks share: what many do at once to one key cannot be judged
// in reasonable time.
func (p *proc) shared(what string) string { return what + strconv.Itoa(p.task/4) }

// keys makes calls on keys that other tasks use, too.
func (p *proc) keys(n int) {
	for range n {
		key := p.shared("k") + "/" + strconv.Itoa(p.rand.IntN(2))
		value := fmt.Sprintf("%d/%d", p.life, p.rand.IntN(1000))
		switch p.rand.IntN(8) {
		case 6, 7:
			p.swap(key, value)
		case 0:
			p.put(history.Insert, key, value)
		case 1, 2:
			p.put(history.Overwrite, key, value)
		case 3:
			p.put(history.Delete, key, "")
		default:
			p.get(key)
		}
	}
}

// adds increments a number, from two callers at once.
func (p *proc) adds(n int) {
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			for range n {
				p.put(history.Increment, p.shared("n"), "1")
			}
		})
	}
	both.Wait()
}

// burst increments numbers, one call shortly after the other, and then waits for all of them.
func (p *proc) burst(n int) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { p.put(history.Increment, p.shared("n")+"/"+strconv.Itoa(i), "1") })
		p.pause(time.Duration(p.rand.Int64N(int64(20 * time.Millisecond))))
	}
	all.Wait()
}

// pass gives something to the next task, and waits for what the one before gives.
func (p *proc) pass(step int) {
	n := p.world.plan.tasks
	p.put(history.Insert, fmt.Sprintf("p%d/%d", step, (p.task+1)%n), strconv.Itoa(p.task))
	p.await(fmt.Sprintf("p%d/%d", step, p.task))
}

// await waits for a key.
func (p *proc) await(key string) {
	if !p.over() {
		p.key(history.KeyCall{Client: int(p.life), Action: history.Wait, Key: key}, coord.GetKeyValue{Call: p.who(), Key: key})
	}
}

// put changes a key.
func (p *proc) put(action history.KeyAction, key, value string) {
	if p.over() {
		return
	}
	c := history.KeyCall{Client: int(p.life), Action: action, Key: key, Value: value}
	var ev coord.Event
	switch action {
	case history.Increment:
		ev = coord.IncrementKeyValue{Call: p.who(), Key: key, By: 1}
	case history.Delete:
		ev = coord.DeleteKeyValue{Call: p.who(), Key: key}
	default:
		ev = coord.InsertKeyValue{Call: p.who(), Key: key, Value: p.bytesOf(value), Overwrite: action == history.Overwrite}
	}
	p.key(c, ev)
}

// swap replaces what the task believes to be the value of a key. The dialects of stock clients have no such
// call: it is one of serry's own, which a relay passes on as well.
func (p *proc) swap(key, value string) {
	if p.over() {
		return
	}
	old := p.seen[key]
	c := history.KeyCall{Client: int(p.life), Action: history.Swap, Key: key, Value: value, Old: old}
	ev := coord.SwapKeyValue{Call: p.who(), Key: key, New: p.bytesOf(value)}
	if old != "" {
		ev.Old = p.bytesOf(old)
	}
	p.key(c, ev)
}

// get asks for a key.
func (p *proc) get(key string) {
	p.key(history.KeyCall{Client: int(p.life), Action: history.Get, Key: key}, coord.TryGetKeyValue{Call: p.who(), Key: key})
}

func (p *proc) key(c history.KeyCall, ev coord.Event) {
	p.does(string(c.Action) + " " + c.Key)
	if p.member != nil {
		p.memberKey(c)
		return
	}
	c.Call = p.world.clock.Now()
	result, st, ok := p.call(ev)
	if ok {
		c.Return = p.world.clock.Now()
		err := p.dialectOf(ev).Error(st.Code, st.Message, st.Details)
		if failed, is := result.(failure); is {
			err = failed.err
		}
		c.Exists = errors.Is(err, serry.ErrExists) && c.Action == history.Insert
		c.Absent = errors.Is(err, serry.ErrNotFound) && c.Action == history.Get
		c.Other = errors.Is(err, serry.ErrChanged) && c.Action == history.Swap
		if v, is := result.(coord.Value); is {
			c.Found = brief(v.Value)
		}
		if p.noRoom(st.Code == codes.ResourceExhausted || errors.Is(err, serry.ErrLimit)) {
			c.Return = 0
			p.key(c, ev)
			return
		}
		if err != nil && !c.Exists && !c.Absent && !c.Other {
			p.died(string(c.Action)+" "+c.Key, st)
			if !p.unsettled(c.Call) && !p.world.rolledBack() {
				return // refused, so it had no effect
			}
			c.Return = 0
		} else if c.Action != history.Get && c.Action != history.Wait {
			p.current(string(c.Action), c.Call)
		}
	}
	p.noteKey(c)
}

func (p *proc) noteKey(c history.KeyCall) {
	p.learn(c)
	keys := []string{c.Key}
	if c.Action == history.Delete && c.Key == deeper(p.shared("k")) { // a directory: all that is below
		keys = append(keys, c.Key+"/0", c.Key+"/1")
	}
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	for _, key := range keys {
		c.Key = named(p.epoch, key)
		p.world.mu.report.Keys = append(p.world.mu.report.Keys, c)
	}
}

// learn notes what a call says of the value of a key, for a later swap.
func (p *proc) learn(c history.KeyCall) {
	if c.Return == 0 || p.seen == nil || !strings.HasPrefix(c.Key, "k") {
		return
	}
	switch c.Action {
	case history.Get:
		p.seen[c.Key] = c.Found
	case history.Insert, history.Overwrite, history.Swap:
		if !c.Exists && !c.Other {
			p.seen[c.Key] = c.Value
		}
	case history.Delete:
		delete(p.seen, c.Key)
	}
}

// large pads a value so that it lies aside in the journal; brief takes that away again.
func large(value string) []byte {
	return append([]byte(value), make([]byte, coord.AsideBytes)...)
}

func brief(value []byte) string { return string(bytes.TrimRight(value, "\x00")) }

// bytesOf is what a call stores.
func (p *proc) bytesOf(value string) []byte {
	if p.world.plan.large && value[len(value)-1]%2 == 0 {
		return large(value)
	}
	return []byte(value)
}

// meet arrives at the next instance of a barrier.
func (p *proc) meet(id string, members []int) {
	if p.over() {
		return
	}
	p.does("barrier " + id)
	counter := p.counters[id]
	c := history.BarrierCall{ID: id, Instance: counter, Members: members, Member: p.task, Life: p.life}
	ev := coord.Barrier{
		Call: p.who(), ID: id, Counter: counter, Timeout: p.world.patience(), Recoverable: p.world.plan.recoverable,
	}
	if id != "all" {
		for _, m := range members {
			ev.Tasks = append(ev.Tasks, serry.TaskID{Job: job, Index: m})
		}
	}
	if p.world.plan.mode == comeback && counter == 0 {
		c.Instance = history.AnyInstance // C-BAR-4: who comes first with 0 is told which it is
	}
	c.Call = p.world.clock.Now()
	if p.member != nil {
		p.memberMeets(&c, ev)
	} else if result, st, ok := p.call(ev); ok {
		p.met(&c, result, st)
	}
	c.ID = named(p.epoch, c.ID)
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.world.mu.report.Barriers = append(p.world.mu.report.Barriers, c)
}

// patience is how long a barrier waits. Where tasks may die and come back, too late perhaps, not long; but
// longer than calls can be held up on their way. If one came after the end of its instance, and the next
// was open already, that would end for all (C-BAR-10).
func (w *world) patience() time.Duration {
	if w.plan.mode != comeback {
		return time.Hour
	}
	d := 4*time.Second + w.plan.net.crawl(16<<10)
	for _, f := range w.plan.faults {
		switch f.kind {
		case freeze, stallLink, deafLink, muteLink, cutOff:
			d += f.lasts
		}
	}
	return d
}

// met takes the answer of a barrier.
func (p *proc) met(c *history.BarrierCall, result coord.Result, st rpc.Status) {
	if passed, is := result.(coord.Passed); is {
		c.Return, c.Passed, c.Counter = p.world.clock.Now(), true, passed.Counter
		if c.Instance == history.AnyInstance {
			c.Instance = c.Counter
		}
		p.counters[c.ID] = c.Counter + 1
		p.current("barrier "+c.ID, c.Call)
		return
	}
	var failed *serry.BarrierError
	if err := p.dialect().Error(st.Code, st.Message, st.Details); errors.As(err, &failed) && p.world.plan.mode == comeback && errors.Is(err, serry.ErrTimeout) {
		c.Return, c.Failed = p.world.clock.Now(), st.Message
		if c.Instance == history.AnyInstance {
			c.Instance = failed.Counter
		}
		p.counters[c.ID] = failed.Counter + 1
		return
	}
	if p.world.plan.mode == fatal && p.world.hasCasualty() {
		c.Return, c.Failed = p.world.clock.Now(), st.Message
	}
	p.died("barrier "+c.ID, st)
}

// alive asks who is there.
func (p *proc) alive() {
	if p.over() {
		return
	}
	p.does("live set")
	c := history.RoundCall{Member: p.task, Life: p.life, Of: named(p.epoch, "all")}
	ev := coord.GetAliveTasks{Call: p.who()}
	for _, m := range p.world.everybody() {
		ev.Tasks = append(ev.Tasks, serry.TaskID{Job: job, Index: m})
	}
	c.Call = p.world.clock.Now()
	if p.member != nil {
		if !p.memberAgrees(&c, ev.Tasks) {
			return
		}
	} else if result, st, ok := p.call(ev); ok && !st.OK() {
		p.died("live set", st)
		if !p.unsettled(c.Call) {
			return
		}
	} else if ok {
		c.Return = p.world.clock.Now()
		p.current("live set", c.Call)
		a := result.(*coord.Alive)
		for i, t := range a.Tasks {
			c.Alive = append(c.Alive, history.LiveMember{Member: t.Index, Life: uint64(a.Incarnations[i])})
		}
	}
	slices.SortFunc(c.Alive, func(a, b history.LiveMember) int { return a.Member - b.Member })
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.world.mu.report.Rounds = append(p.world.mu.report.Rounds, c)
}
