package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

const (
	// firstWord is after how long a member says which others it waits for, and nextWord how long it waits until it
	// says so again.
	firstWord = 3 * time.Second
	nextWord  = 30 * time.Second
)

// ready waits until etcd is part of a majority, or ctx ends; in the second case it ends etcd. While it waits, it
// says for which members.
func ready(ctx context.Context, e *embed.Etcd, cfg Config) error {
	word := time.NewTimer(firstWord)
	defer word.Stop()
	for {
		select {
		case <-e.Server.ReadyNotify():
			return nil
		case <-word.C:
			word.Reset(nextWord)
			if missing := unanswered(ctx, cfg); len(missing) > 0 && cfg.Log != nil {
				cfg.Log.Warn("waiting for a majority of the peers", slog.Int("of", len(cfg.Peers)), slog.String("missing", strings.Join(missing, ", ")))
			}
		case err := <-e.Err():
			e.Close()
			return err
		case <-e.Server.StopNotify():
			e.Close()
			return errors.New("stopped while starting")
		case <-ctx.Done():
			e.Server.Stop() // first: Close waits for requests that cannot end without a majority
			e.Close()
			return fmt.Errorf("no majority of the %d members answers: %w", len(cfg.Peers), context.Cause(ctx))
		}
	}
}

// unanswered names the other members that do not answer at their address, and why.
func unanswered(ctx context.Context, cfg Config) []string {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	names := slices.Sorted(maps.Keys(cfg.Peers))
	found := make([]string, len(names))
	var probes sync.WaitGroup
	for i, name := range names {
		if name == cfg.Name {
			continue
		}
		probes.Go(func() {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", cfg.Peers[name])
			if err == nil {
				c.Close()
				return
			}
			if op, ok := errors.AsType[*net.OpError](err); ok {
				err = op.Err // without the address
			}
			found[i] = fmt.Sprintf("%s at %s (%v)", name, cfg.Peers[name], err)
		})
	}
	probes.Wait()
	return slices.DeleteFunc(found, func(s string) bool { return s == "" })
}
