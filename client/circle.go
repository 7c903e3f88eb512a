package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/serry-dev/serry"
)

// MaxShareBytes bounds what a member can hand to a [Circle] at once. The service carries keys and
// small values; larger ones want a transfer.
const MaxShareBytes = 64 << 20

// ErrDiffer says that the members of a circle do not agree.
var ErrDiffer = errors.New("members differ")

// maxCircles bounds how many circles a member can take part in during its life.
const maxCircles = 1 << 16

// A Circle is a group of tasks that do things together: hand something round, check that they have the
// same, wait for each other. All of them make the same calls in the same order. A call that fails says
// who was missing, and a call that does not fit those of the others says who made which.
//
// A circle is known by its name, its tasks, and the lives that these have when it is first used. A
// task that makes it again, in the same life, goes on where it was. If a task restarts, all make the circle again.
//
// If the context of a call ends first, the value that was handed in stands: the next call goes on with
// the same round.
type Circle struct {
	member *Member
	name   string
	tasks  []serry.TaskID // sorted

	joining sync.Mutex // held while used is found out
	used    *rounds    // nil before the first use
}

// rounds are the calls of a circle so far. All circles of one name, set and lives in a member share them.
type rounds struct {
	dir   string              // below which the keys of all lives lie
	keys  *KV                 // of these lives
	lives []serry.Incarnation // these lives, in the order of tasks

	mu    sync.Mutex // one call at a time
	round int64      // the last one that was begun
	open  bool       // it has not ended: our value is stored, but not all others came
	kept  int64      // the first round of which our value is not removed
	swept bool       // nothing is left of former lives, or another circle has to look
}

// Circle makes the circle of that name among some tasks, of which we must be one, or among all.
func (m *Member) Circle(ctx context.Context, name string, tasks ...serry.TaskID) (*Circle, error) {
	if len(tasks) == 0 {
		all, err := m.Tasks(ctx)
		if err != nil {
			return nil, err
		}
		for _, t := range all.Tasks {
			tasks = append(tasks, t.Task)
		}
	}
	tasks = slices.Clone(tasks)
	slices.SortFunc(tasks, serry.TaskID.Compare)
	if tasks = slices.Compact(tasks); !slices.Contains(tasks, m.cfg.Task) {
		return nil, fmt.Errorf("circle %q: %w: %v is not one of %v", name, serry.ErrNotMember, m.cfg.Task, tasks)
	}
	return &Circle{member: m, name: name, tasks: tasks}, nil
}

// join finds the rounds of the circle. It waits until all tasks are there, because what their former
// lives have stored must not be taken for what they store now.
func (c *Circle) join(ctx context.Context) (*rounds, error) {
	c.joining.Lock()
	defer c.joining.Unlock()
	if c.used != nil {
		return c.used, nil
	}
	var missing []serry.TaskID
	for snapshot, err := range c.member.Watch(ctx) {
		if err != nil {
			return nil, fmt.Errorf("%w, missing %v", err, some(missing))
		}
		var lives []serry.Incarnation
		if lives, missing = c.lives(snapshot); len(missing) == 0 {
			c.used, err = c.member.rounds(c.name, c.tasks, lives)
			return c.used, err
		}
	}
	return nil, context.Cause(ctx)
}

// lives are the present lives of all tasks of the circle, unless some are missing.
func (c *Circle) lives(s serry.Snapshot) (lives []serry.Incarnation, missing []serry.TaskID) {
	here := make(map[serry.TaskID]serry.Incarnation, len(s.Tasks))
	for _, t := range s.Tasks {
		if t.State == serry.Connected {
			here[t.Task] = t.Incarnation
		}
	}
	for _, t := range c.tasks {
		if life, ok := here[t]; ok {
			lives = append(lives, life)
		} else {
			missing = append(missing, t)
		}
	}
	return lives, missing
}

// rounds finds or makes the rounds of a circle.
func (m *Member) rounds(name string, tasks []serry.TaskID, lives []serry.Incarnation) (*rounds, error) {
	set, life := sha256.Sum256(fmt.Append(nil, tasks)), sha256.Sum256(fmt.Append(nil, lives))
	all := m.KV().Sub(fmt.Sprintf("serry/circle/%x/%x", name, set[:8]))
	keys := all.Sub(fmt.Sprintf("%x", life[:8]))
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.mu.circles[keys.prefix]
	if r == nil && len(m.mu.circles) >= maxCircles {
		return nil, &serry.LimitError{Limit: "circles", Max: maxCircles}
	}
	if r == nil {
		r = &rounds{dir: strings.TrimSuffix(all.prefix, "/"), keys: keys, lives: lives, kept: 1, swept: m.cfg.Task != tasks[0]}
		m.mu.circles[keys.prefix] = r
	}
	return r, nil
}

// Tasks are the members of the circle, sorted.
func (c *Circle) Tasks() []serry.TaskID { return slices.Clone(c.tasks) }

// Gather hands value to all members and returns the values of all, in the order of [Circle.Tasks].
func (c *Circle) Gather(ctx context.Context, value []byte) ([][]byte, error) {
	return c.share(ctx, "gather", value)
}

// Broadcast returns the value of one member to all. What the others hand in does not matter.
func (c *Circle) Broadcast(ctx context.Context, from serry.TaskID, value []byte) ([]byte, error) {
	at, ok := slices.BinarySearchFunc(c.tasks, from, serry.TaskID.Compare)
	if !ok {
		return nil, fmt.Errorf("broadcast from %v: %w", from, serry.ErrNotMember)
	}
	if from != c.member.cfg.Task {
		value = nil
	}
	all, err := c.share(ctx, "broadcast from "+from.String(), value)
	if err != nil {
		return nil, err
	}
	return all[at], nil
}

// Sync waits until all members are at the point of that name.
func (c *Circle) Sync(ctx context.Context, name string) error {
	_, err := c.share(ctx, "sync "+name, nil)
	return err
}

// AssertEqual fails on every member, with ErrDiffer, if not all have the same value. The error says
// who has which.
func (c *Circle) AssertEqual(ctx context.Context, what string, value []byte) error {
	digest := sha256.Sum256(value)
	all, err := c.share(ctx, "equal "+what, digest[:])
	if err != nil {
		return err
	}
	camps := make(map[string][]serry.TaskID)
	var order []string
	for i, d := range all {
		if camps[string(d)] == nil {
			order = append(order, string(d))
		}
		camps[string(d)] = append(camps[string(d)], c.tasks[i])
	}
	if len(order) <= 1 {
		return nil
	}
	var texts []string
	for _, d := range order {
		texts = append(texts, fmt.Sprintf("%.6x at %v", d, some(camps[d])))
	}
	return fmt.Errorf("%s: %w: %s", what, ErrDiffer, strings.Join(texts, ", "))
}

// Max returns the highest of what the members hand in, number by number.
func (c *Circle) Max(ctx context.Context, numbers ...int64) ([]int64, error) {
	mine, err := binary.Append(nil, binary.LittleEndian, numbers)
	if err != nil {
		return nil, err
	}
	all, err := c.share(ctx, fmt.Sprintf("max of %d", len(numbers)), mine)
	if err != nil {
		return nil, err
	}
	highest, theirs := slices.Clone(numbers), make([]int64, len(numbers))
	for i, b := range all {
		if err := binary.Read(bytes.NewReader(b), binary.LittleEndian, theirs); err != nil {
			return nil, fmt.Errorf("numbers of %v: %w", c.tasks[i], err)
		}
		for j, n := range theirs {
			highest[j] = max(highest[j], n)
		}
	}
	return highest, nil
}

// share is one round: each member stores its value under its own key and waits for the values of all others.
func (c *Circle) share(ctx context.Context, call string, value []byte) ([][]byte, error) {
	if len(value) > MaxShareBytes {
		return nil, &serry.LimitError{Limit: "share-bytes", Max: MaxShareBytes}
	}
	r, err := c.join(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", call, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	stored, err := c.exchange(ctx, r, append(append(binary.AppendUvarint(nil, uint64(len(call))), call...), value...))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", call, err)
	}
	values := make([][]byte, len(c.tasks))
	for i, b := range stored {
		theirs, rest, ok := cutCall(b)
		if !ok || theirs != call {
			return nil, c.outOfStep(call, stored)
		}
		values[i] = rest
	}
	return values, nil
}

// exchange begins a round, or goes on with one that has not ended, and returns what all have stored.
func (c *Circle) exchange(ctx context.Context, r *rounds, mine []byte) ([][]byte, error) {
	self := key(c.member.cfg.Task)
	if !r.open {
		r.round++
		r.open = true
	}
	dir := r.keys.Sub(fmt.Sprint(r.round))
	// Others may have read what we stored in this round already: it stands.
	if err := dir.Create(ctx, self, mine); err != nil && !errors.Is(err, serry.ErrExists) {
		return nil, err
	}
	stored, err := c.collect(ctx, dir)
	if err != nil {
		return nil, err
	}
	r.open = false
	if err := c.tidy(ctx, r); err != nil {
		c.member.cfg.Log.Debug("keys of a circle are left for later", "circle", c.name, "err", err)
	}
	return stored, nil
}

// tidy removes what no task needs, after a round in which all tasks were seen: our values of the rounds
// before, which all have read, and what former lives have left. The round has ended whatever comes of
// it, so what cannot be removed now is removed after the next one.
func (c *Circle) tidy(ctx context.Context, r *rounds) error {
	for ; r.kept < r.round; r.kept++ {
		if err := r.keys.Sub(fmt.Sprint(r.kept)).Delete(ctx, key(c.member.cfg.Task)); err != nil {
			return err
		}
	}
	if r.swept { // by us, or by the first task, which does it for all
		return nil
	}
	err := c.sweep(ctx, r)
	r.swept = err == nil
	return err
}

// sweep removes what former lives have left. A task may restart meanwhile, so that what is there may belong
// to later lives. Lives are never taken up again: if the present ones are still ours after the keys were
// listed, all others among those keys are former ones.
func (c *Circle) sweep(ctx context.Context, r *rounds) error {
	all := c.member.KV()
	left, err := all.List(ctx, r.dir)
	if err != nil {
		return err
	}
	now, err := c.member.Tasks(ctx)
	if err != nil {
		return err
	}
	if present, _ := c.lives(now); !slices.Equal(present, r.lives) {
		return nil // the circle of the present lives will do it
	}
	swept := make(map[string]bool)
	for _, e := range left {
		lives, _, _ := strings.Cut(strings.TrimPrefix(e.Key, r.dir+"/"), "/")
		dir := r.dir + "/" + lives
		if dir+"/" == r.keys.prefix || swept[dir] {
			continue
		}
		swept[dir] = true
		if err := all.Delete(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// collect waits for the values of all members. If that fails it names those that did not come.
func (c *Circle) collect(ctx context.Context, dir *KV) ([][]byte, error) {
	keys := make([]string, len(c.tasks))
	for i, t := range c.tasks {
		keys[i] = key(t)
	}
	found, err := gather(ctx, dir.Wait, keys, len(keys))
	values := make([][]byte, len(keys))
	var missing []serry.TaskID
	for i, k := range keys {
		v, ok := found[k]
		if !ok {
			missing = append(missing, c.tasks[i])
		}
		values[i] = v
	}
	if err != nil {
		return nil, fmt.Errorf("%w, missing %v", err, some(missing))
	}
	return values, nil
}

// errEnough ends the waits that are not needed any more.
var errEnough = errors.New("enough keys have come")

// gather asks for all keys at once, until need of them have come, or all are answered if need is 0. A key that is not
// there is no error. With an error gather returns those that came before it.
func gather(ctx context.Context, ask func(context.Context, string) ([]byte, error), keys []string, need int) (map[string][]byte, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var (
		done  sync.WaitGroup
		mu    sync.Mutex
		found = make(map[string][]byte, len(keys))
		fail  error
	)
	for _, k := range keys {
		done.Go(func() {
			v, err := ask(ctx, k)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				found[k] = v
				if need > 0 && len(found) >= need {
					stop(errEnough)
				}
			case fail == nil && !errors.Is(err, serry.ErrNotFound) && !errors.Is(err, errEnough):
				fail = err
				stop(err)
			}
		})
	}
	done.Wait()
	if need > 0 && len(found) >= need {
		fail = nil // of those that were not needed
	}
	return found, fail
}

// outOfStep says who made which call, where not all made the same.
func (c *Circle) outOfStep(call string, stored [][]byte) error {
	var others []string
	for i, b := range stored {
		if theirs, _, _ := cutCall(b); theirs != call {
			others = append(others, fmt.Sprintf("%v is at %q", c.tasks[i], theirs))
		}
	}
	return fmt.Errorf("%q: %w: %s", call, ErrDiffer, strings.Join(others[:min(len(others), 8)], ", "))
}

func cutCall(b []byte) (call string, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return "", nil, false
	}
	return string(b[size : size+int(n)]), b[size+int(n):], true
}

// key is the last part of a member's key.
func key(t serry.TaskID) string { return fmt.Sprintf("%s-%d", t.Job, t.Index) }

// some shortens a list of tasks for a message.
func some(tasks []serry.TaskID) string {
	const most = 8
	if len(tasks) <= most {
		return fmt.Sprint(tasks)
	}
	return fmt.Sprintf("%v and %d more", tasks[:most], len(tasks)-most)
}
