package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/serry-dev/serry/internal/lab/history"
	"github.com/serry-dev/serry/wire/xlapb"
)

const (
	keyPause = 200 * time.Millisecond

	// generationTime is how long keys are written. Later they are read once more, by every client that has a
	// part in them, and then deleted: the state of the service stays small. It is no multiple of the time
	// between kills.
	generationTime = 27 * time.Second

	groupKeys = 4  // that members of a group write and read
	raceKeys  = 64 // that members of a group try to be first at
)

// keyLoop writes, increments and reads keys. Those of a group are shared by its members, in generations.
func (c *client) keyLoop(ctx, working context.Context) {
	for working.Err() == nil && ctx.Err() == nil {
		if g := int(time.Since(c.job.began) / generationTime); g > c.generation {
			c.generation = g
			c.audit(ctx, g-2)
			c.clear(ctx, g-3)
		}
		switch n := c.random.IntN(20); {
		case n < 6:
			c.increment(ctx, c.counter(c.generation))
		case n < 11:
			c.set(ctx, history.Overwrite, c.shared(c.generation, c.random.IntN(groupKeys)))
		case n < 16:
			c.get(ctx, c.shared(c.generation, c.random.IntN(groupKeys)))
		case n < 18:
			c.set(ctx, history.Insert, c.race(c.generation, c.random.IntN(raceKeys)))
		default:
			c.insertOnce(ctx)
		}
		c.pause(working, keyPause/2+time.Duration(c.random.Int64N(int64(keyPause))))
	}
}

// Names of keys.
func (c *client) counter(generation int) string {
	return fmt.Sprintf("soak/%d/%d/counter", generation, c.group)
}

func (c *client) shared(generation, i int) string {
	return fmt.Sprintf("soak/%d/%d/key-%d", generation, c.group, i)
}

func (c *client) race(generation, i int) string {
	return fmt.Sprintf("soak/%d/%d/race-%d", generation, c.group, i)
}

// value is one that no client has written before.
func (c *client) value() string {
	c.written++
	return fmt.Sprintf("%d.%d", c.task, c.written)
}

// insertOnce writes a key of its own, which is looked for later.
func (c *client) insertOnce(ctx context.Context) {
	key := fmt.Sprintf("soak/%d/own/%d/%d", c.generation, c.task, c.written)
	value, ok := c.set(ctx, history.Insert, key)
	if !ok {
		return
	}
	if c.once[c.generation] == nil {
		c.once[c.generation] = make(map[string]string)
	}
	c.once[c.generation][key] = value
}

// set writes a new value to a key, and says whether the service took it.
func (c *client) set(ctx context.Context, action history.KeyAction, key string) (value string, ok bool) {
	value = c.value()
	note := history.KeyCall{Client: c.task, Action: action, Key: key, Value: value}
	var err error
	note.Span, err = c.call(ctx, xlapb.CoordinationService_InsertKeyValue_FullMethodName, &xlapb.InsertKeyValueRequest{
		Incarnations: c.agent.Incarnations(), AllowOverwrite: action == history.Overwrite,
		Kv: &xlapb.KeyValueEntry{Key: key, Value: []byte(value)},
	}, new(xlapb.InsertKeyValueResponse))
	if action == history.Insert && status.Code(err) == codes.AlreadyExists {
		note.Exists, note.Return, err = true, c.job.clock.Now(), nil
	}
	c.note(ctx, note, err)
	return value, err == nil && !note.Exists
}

func (c *client) increment(ctx context.Context, key string) {
	note := history.KeyCall{Client: c.task, Action: history.Increment, Key: key, Value: "1"}
	var reply xlapb.IncrementKeyValueResponse
	var err error
	note.Span, err = c.call(ctx, xlapb.CoordinationService_IncrementKeyValue_FullMethodName,
		&xlapb.IncrementKeyValueRequest{Incarnations: c.agent.Incarnations(), Key: key, Increment: 1}, &reply)
	note.Found = string(reply.GetKv().GetValue())
	c.note(ctx, note, err)
}

// get reads a key: its value, or that there is none.
func (c *client) get(ctx context.Context, key string) (value string, there bool) {
	note := history.KeyCall{Client: c.task, Action: history.Get, Key: key}
	var reply xlapb.TryGetKeyValueResponse
	var err error
	note.Span, err = c.call(ctx, xlapb.CoordinationService_TryGetKeyValue_FullMethodName,
		&xlapb.TryGetKeyValueRequest{Incarnations: c.agent.Incarnations(), Key: key}, &reply)
	if status.Code(err) == codes.NotFound {
		note.Absent, note.Return, err = true, c.job.clock.Now(), nil
	}
	note.Found = string(reply.GetKv().GetValue())
	c.note(ctx, note, err)
	return note.Found, err == nil && !note.Absent
}

func (c *client) remove(ctx context.Context, key string) {
	note := history.KeyCall{Client: c.task, Action: history.Delete, Key: key}
	var err error
	note.Span, err = c.call(ctx, xlapb.CoordinationService_DeleteKeyValue_FullMethodName,
		&xlapb.DeleteKeyValueRequest{Incarnations: c.agent.Incarnations(), Key: key}, new(xlapb.DeleteKeyValueResponse))
	c.note(ctx, note, err)
}

// note keeps a call for the judges.
func (c *client) note(ctx context.Context, note history.KeyCall, err error) {
	c.keys = append(c.keys, note)
	if err != nil {
		c.fail(ctx, string(note.Action), err)
	}
}

// audit looks for everything of a generation that this client has a part in.
func (c *client) audit(ctx context.Context, generation int) {
	if generation < 0 {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(c.once[generation])) {
		want := c.once[generation][key]
		if got, there := c.get(ctx, key); (got != want || !there) && ctx.Err() == nil {
			c.lost = append(c.lost, fmt.Sprintf("client %d: key %s has %q, there: %v; want %q", c.task, key, got, there, want))
		}
	}
	c.get(ctx, c.counter(generation))
	for i := range groupKeys {
		c.get(ctx, c.shared(generation, i))
	}
}

// auditAll looks for everything that has not been deleted, when no client writes any more.
func (c *client) auditAll(ctx context.Context) {
	for g := max(0, c.generation-2); g <= c.generation; g++ {
		c.audit(ctx, g)
	}
}

// clear deletes the keys of a generation: its own, and as the first of a group those of the group.
func (c *client) clear(ctx context.Context, generation int) {
	if generation < 0 {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(c.once[generation])) {
		c.remove(ctx, key)
	}
	delete(c.once, generation)
	if int32(c.task) != c.peers[0] {
		return
	}
	c.remove(ctx, c.counter(generation))
	for i := range groupKeys {
		c.remove(ctx, c.shared(generation, i))
	}
	for i := range raceKeys {
		c.remove(ctx, c.race(generation, i))
	}
}
