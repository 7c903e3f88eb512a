package collective

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire"
)

// The agreements of a stock service carry no words. There the votes of a step are keys: each process writes its own, passes a
// barrier of all members, and reads those of the others (CL-ATM-6). A barrier that fails, and a vote that is missing, are doubt: other members may
// have passed the barrier, and read all of them.

// Keys is what steps need of the store of a stock service; *client.KV satisfies it.
type Keys interface {
	Put(ctx context.Context, key string, value []byte) error
	List(ctx context.Context, dir string) ([]serry.Entry, error)
	Delete(ctx context.Context, key string) error
}

// A gatherer is a member that can meet others at a barrier.
type gatherer interface {
	Barrier(ctx context.Context, id string, o serry.BarrierOptions) error
}

// votes are those of all members. Without an error they are the same on all that get them.
func (c *clique) votes(ctx context.Context, n stepName, mine vote) (serry.Agreement, error) {
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	c.group.background(0, func(context.Context) { c.callToStep(calling, n) })
	a, err := c.group.member.Agree(ctx, mine.append(nil), stepSet(c.key, n)...)
	if meets, ok := c.group.member.(gatherer); ok && c.group.opt.Keys != nil && errors.Is(err, wire.ErrUnsupported) {
		return c.votesByKeys(ctx, meets, n, mine)
	}
	return a, err
}

// dir is where the votes of a step are.
func (n stepName) dir() string { return fmt.Sprintf("serry/step/%016x/%d", n.stream, n.number) }

// voteKey is where the vote of a process is, by its first rank.
func (c *clique) voteKey(n stepName, l serry.Life) string {
	return fmt.Sprintf("%s/%d", n.dir(), c.key.RanksOf(l)[0])
}

// votesByKeys is votes with a stock service.
func (c *clique) votesByKeys(ctx context.Context, meets gatherer, n stepName, mine vote) (a serry.Agreement, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A member whose clique has failed outside of a step does not come, and cannot be called.
	defer context.AfterFunc(c.ctx, func() { time.AfterFunc(stepEndTime, cancel) })()
	keys, key := c.group.opt.Keys, c.voteKey(n, c.group.life)
	if err := keys.Put(ctx, key, mine.append(nil)); err != nil {
		return a, err
	}
	tasks := mapped(c.key.Lives(), func(l serry.Life) serry.TaskID { return l.Task })
	if err = meets.Barrier(ctx, fmt.Sprintf("serry/step/%016x", n.stream), serry.BarrierOptions{Among: tasks}); err == nil {
		if n.number > 1 { // all have passed the barrier, so they have read the votes of the step before
			c.group.deleteVote(ctx, c.voteKey(stepName{n.stream, n.number - 1}, c.group.life))
		}
		var list []serry.Entry
		if list, err = keys.List(ctx, n.dir()); err == nil {
			a, err = c.read(n, list)
		}
	}
	if err != nil || c.verdict(n, a) != nil { // no step follows
		c.group.background(0, func(ctx context.Context) { c.group.deleteVoteLater(ctx, key) })
	}
	return a, err
}

// voteTime is how long the vote of a step that failed stays: others may still read it.
const voteTime = time.Minute

// deleteVoteLater deletes a vote after a while.
func (g *Group) deleteVoteLater(ctx context.Context, key string) {
	timer := time.NewTimer(voteTime)
	defer timer.Stop()
	select {
	case <-timer.C:
		g.deleteVote(ctx, key)
	case <-ctx.Done():
	}
}

func (g *Group) deleteVote(ctx context.Context, key string) {
	if err := g.opt.Keys.Delete(ctx, key); err != nil {
		g.log.Debug("vote not deleted", "key", key, "err", err)
	}
}

// read makes an agreement of votes.
func (c *clique) read(n stepName, list []serry.Entry) (serry.Agreement, error) {
	found := make(map[string][]byte)
	for _, e := range list {
		found[e.Key] = e.Value
	}
	a := serry.Agreement{Alive: make(map[serry.TaskID]serry.Incarnation), Words: make(map[serry.TaskID][]byte)}
	for _, l := range c.key.Lives() {
		word, ok := found[c.voteKey(n, l)]
		if !ok {
			return a, fmt.Errorf("the vote of %v: %w", l.Task, errMissingVote)
		}
		a.Alive[l.Task], a.Words[l.Task] = l.Incarnation, word
	}
	return a, nil
}

var errMissingVote = errors.New("it is not there any more")
