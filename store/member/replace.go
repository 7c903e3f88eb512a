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

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/serry-dev/serry/store"
)

// List names the members, in the order of their addresses. It asks the member that runs in dir, on
// this host.
func List(ctx context.Context, dir string) ([]store.Peer, error) {
	c, err := visit(dir)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	known, err := c.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("members of %s: %w", dir, err)
	}
	var all []store.Peer
	for _, m := range known.Members {
		all = append(all, peersOf(m.Name, m.PeerURLs, m.ClientURLs)...)
	}
	return sorted(all), nil
}

// peersOf reads what etcd knows of a member.
func peersOf(name string, peerURLs, clientURLs []string) []store.Peer {
	var all []store.Peer
	for _, u := range peerURLs {
		p := store.Peer{Name: name, Log: host(u)}
		for _, c := range clientURLs {
			if strings.HasPrefix(c, serverScheme+"://") {
				p.Address = host(c)
			}
		}
		all = append(all, p)
	}
	return all
}

func sorted(all []store.Peer) []store.Peer {
	slices.SortFunc(all, func(a, b store.Peer) int { return strings.Compare(a.Log, b.Log) })
	return all
}

// ErrRuns says that a member to be replaced is not lost.
var ErrRuns = errors.New("it runs; end it first")

// probeTime is how long a member that is said to be lost may take to show that it is not.
const probeTime = time.Second

// Replace makes room for a member that has lost its folder: its former self, whose votes are forgotten, is
// removed, and a new one at the same address is added, to be started with [Config.Join]. It asks the
// member that runs in dir, on this host; a majority must be there.
//
// It may be repeated, on any host, wherever it was interrupted. A member that was added and has not been
// started is removed and added again, because only the operator knows whether it has voted and lost its
// folder, too. Once the former self is removed no list names the address any more, so a key in etcd says
// that it is being replaced, from before the removal until after the addition. Each step is harmless when it
// is performed twice: the key is the same, an id that was removed never comes back, and an address is in the
// list once.
func Replace(ctx context.Context, dir, address string) error {
	return replace(ctx, dir, address, func(string) error { return nil })
}

// replace is Replace, with a function that is told of each step that was taken and can stop it there.
func replace(ctx context.Context, dir, address string, taken func(step string) error) error {
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
	r := replacement{client: c, address: address, members: known.Members}
	for _, step := range []struct {
		name string
		take func(context.Context) error
	}{{"note", r.note}, {"remove", r.remove}, {"add", r.add}, {"forget", r.forget}} {
		err := step.take(ctx)
		if err == nil {
			err = taken(step.name)
		}
		if err != nil {
			return fmt.Errorf("member at %s: %w", address, err)
		}
	}
	return nil
}

// A replacement is that of one member.
type replacement struct {
	client  *clientv3.Client
	address string
	members []*etcdserverpb.Member // before
}

// noteKey is the key that says that the member is being replaced.
func (r *replacement) noteKey() string { return "/serry-upkeep/replaces/" + r.address }

// lost is the former self, or nil if it is gone already.
func (r *replacement) lost() *etcdserverpb.Member {
	for _, m := range r.members {
		for _, u := range m.PeerURLs {
			if host(u) == r.address {
				return m
			}
		}
	}
	return nil
}

// errNoMember says that an address is of no member, and of none that is being replaced.
var errNoMember = errors.New("there is none")

// note says in etcd what is about to happen. If the former self is gone, the key must be there.
func (r *replacement) note(ctx context.Context) error {
	lost := r.lost()
	if lost == nil {
		note, err := r.client.Get(ctx, r.noteKey(), clientv3.WithCountOnly())
		if err == nil && note.Count == 0 {
			err = errNoMember
		}
		return err
	}
	// A lost member that had found its database full cannot clear its alarm, and etcd takes no key before
	// the alarm is cleared.
	_, err := r.client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: lost.ID, Alarm: etcdserverpb.AlarmType_NOSPACE})
	if err == nil {
		_, err = r.client.Put(ctx, r.noteKey(), lost.Name)
	}
	return err
}

func (r *replacement) remove(ctx context.Context) error {
	lost := r.lost()
	if lost == nil {
		return nil
	}
	return insist(ctx, func() error {
		_, err := r.client.MemberRemove(ctx, lost.ID)
		if errors.Is(err, rpctypes.ErrMemberNotFound) {
			return nil
		}
		return err
	})
}

func (r *replacement) add(ctx context.Context) error {
	scheme := "http"
	for _, m := range r.members {
		if len(m.PeerURLs) > 0 && strings.HasPrefix(m.PeerURLs[0], "https:") {
			scheme = "https"
		}
	}
	return insist(ctx, func() error {
		_, err := r.client.MemberAdd(ctx, []string{scheme + "://" + r.address})
		if errors.Is(err, rpctypes.ErrPeerURLExist) {
			return nil
		}
		return err
	}, rpctypes.ErrMemberNotFound) // etcd makes the id of address and second: this one was removed a moment ago
}

func (r *replacement) forget(ctx context.Context) error {
	_, err := r.client.Delete(ctx, r.noteKey())
	return err
}

// insistPause is the time between two attempts to change the list of members.
const insistPause = 500 * time.Millisecond

// insist repeats a change that etcd refuses while the members have not known each other for some seconds, or
// for another error that passes.
func insist(ctx context.Context, change func() error, passing ...error) error {
	for {
		err := change()
		if !errors.Is(err, rpctypes.ErrUnhealthy) && !slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) }) {
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
