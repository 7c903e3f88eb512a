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

// A Circle is a group of tasks that do things together: hand something round, check that they have the
// same, wait for each other. All of them make the same calls in the same order. A call that fails says
// who was missing, and a call that does not fit those of the others says who made which.
type Circle struct {
	member *Member
	keys   *KV
	tasks  []serry.TaskID // sorted

	mu    sync.Mutex // one call at a time
	round int64
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
	digest := sha256.Sum256(fmt.Append(nil, tasks))
	dir := fmt.Sprintf("serry/circle/%x/%x", name, digest[:8])
	return &Circle{member: m, keys: m.KV().Sub(dir), tasks: tasks}, nil
}

// Tasks are the members of the circle, sorted.
func (c *Circle) Tasks() []serry.TaskID { return slices.Clone(c.tasks) }

// Gather hands value to all members and returns everybody's, in the order of [Circle.Tasks].
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

// share is one round: everybody stores what it has under its own key and waits for all others'. What
// a member stored in a round is removed when it has seen everybody in the next: by then all have read
// it.
func (c *Circle) share(ctx context.Context, call string, value []byte) ([][]byte, error) {
	if len(value) > MaxShareBytes {
		return nil, &serry.LimitError{Limit: "share-bytes", Max: MaxShareBytes}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round++
	dir := c.keys.Sub(fmt.Sprint(c.round))
	mine := append(append(binary.AppendUvarint(nil, uint64(len(call))), call...), value...)
	if err := dir.Put(ctx, key(c.member.cfg.Task), mine); err != nil {
		return nil, fmt.Errorf("%s: %w", call, err)
	}
	stored, err := c.collect(ctx, dir)
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
	if c.round > 1 {
		before := c.keys.Sub(fmt.Sprint(c.round - 1))
		if err := before.Delete(ctx, key(c.member.cfg.Task)); err != nil {
			return nil, fmt.Errorf("%s: %w", call, err)
		}
	}
	return values, nil
}

// collect waits for the values of all members. If that fails it names those that did not come.
func (c *Circle) collect(ctx context.Context, dir *KV) ([][]byte, error) {
	keys := make([]string, len(c.tasks))
	for i, t := range c.tasks {
		keys[i] = key(t)
	}
	found, err := gather(ctx, dir.Wait, keys)
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

// gather asks for all keys at once. With an error it returns those that came before it.
func gather(ctx context.Context, ask func(context.Context, string) ([]byte, error), keys []string) (map[string][]byte, error) {
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
			case fail == nil:
				fail = err
				stop(err)
			}
		})
	}
	done.Wait()
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
