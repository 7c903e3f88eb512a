package member

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// An Entry is a member as the others know it.
type Entry struct {
	Name    string // empty: it has not been there yet
	Address string // where the others reach it
}

// List says who the members are, in the order of their addresses. It asks the member that runs in dir, on
// this host.
func List(ctx context.Context, dir string) ([]Entry, error) {
	c, err := visit(dir)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	known, err := c.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("members of %s: %w", dir, err)
	}
	var all []Entry
	for _, m := range known.Members {
		for _, u := range m.PeerURLs {
			all = append(all, Entry{Name: m.Name, Address: host(u)})
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Address, b.Address) })
	return all, nil
}

// ErrRuns says that a member to be replaced is not lost.
var ErrRuns = errors.New("it runs; end it first")

// probeTime is how long a member that is said to be lost may take to show that it is not.
const probeTime = time.Second

// Replace makes room for a member that has lost its folder: its former self, whose votes are forgotten, is
// removed, and a new one at the same address is added, to be started with [Config.Join]. It asks the
// member that runs in dir, on this host; a majority must be there. It may be repeated.
func Replace(ctx context.Context, dir, address string) error {
	c, err := visit(dir)
	if err != nil {
		return err
	}
	defer c.Close()
	known, err := c.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("members of %s: %w", dir, err)
	}
	if nc, err := net.DialTimeout("tcp", address, probeTime); err == nil {
		nc.Close()
		return fmt.Errorf("member at %s: %w", address, ErrRuns)
	}
	scheme := "http"
	var lost *uint64
	for _, m := range known.Members {
		for _, u := range m.PeerURLs {
			if strings.HasPrefix(u, "https:") {
				scheme = "https"
			}
			if host(u) == address {
				lost = &m.ID
			}
		}
	}
	if lost == nil && len(known.Members) > 2 {
		return fmt.Errorf("no member at %s", address)
	}
	if lost != nil {
		err = insist(ctx, func() error {
			_, err := c.MemberRemove(ctx, *lost)
			return err
		})
	}
	if err == nil {
		err = insist(ctx, func() error {
			_, err := c.MemberAdd(ctx, []string{scheme + "://" + address})
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("member at %s: %w", address, err)
	}
	return nil
}

// insistPause lies between two attempts to change who the members are.
const insistPause = 500 * time.Millisecond

// insist repeats a change that etcd refuses while the members have not known each other for some seconds.
func insist(ctx context.Context, change func() error) error {
	for {
		err := change()
		if !errors.Is(err, rpctypes.ErrUnhealthy) {
			return err
		}
		select {
		case <-time.After(insistPause):
		case <-ctx.Done():
			return err
		}
	}
}

// visit connects to the member that runs in a folder.
func visit(dir string) (*clientv3.Client, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{Endpoints: []string{"unix:" + filepath.Join(dir, clientSocket)}, Logger: zap.NewNop()})
}

// host is the address in a URL of a member.
func host(of string) string {
	u, err := url.Parse(of)
	if err != nil {
		return of
	}
	return u.Host
}
