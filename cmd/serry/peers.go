package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/store/member"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/back"
)

// peersPatience is how long the peers may take to agree on who they are. They insist on having known
// each other for some seconds.
const peersPatience = 30 * time.Second

func newPeers() *cobra.Command {
	q := &peersQuery{}
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "Show which server leads, which stand by and which are down",
		Long: `Show the servers of a service: which one leads, in which term, which ones stand
by, how many entries of the log that they share each of them has yet to apply,
and which ones are down. Any of them may be asked: it names the others. Servers
with --store etcd:... do not know all others, so name them all by --address.

With --data-dir the server that runs on this host is asked by its folder.

Exit status: 0 a server leads; 1 none does; 2 a mistake in the command line.`,
		Example: `  serry peers --address host1:8476
  serry peers --address host1:8476,host2:8476,host3:8476 -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return q.run(cmd) },
	}
	q.access.define(cmd)
	q.printer.define(cmd)
	cmd.PersistentFlags().StringVar(&q.dir, "data-dir", "", "`folder` of a server that runs on this host")
	cmd.AddCommand(newReplace(&q.dir))
	return cmd
}

func newReplace(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "replace HOST:PORT",
		Short: "Make room for a server that has lost its folder",
		Long: `Make room for a server that has lost its folder. It has forgotten what it
promised the others, so it must not come back as if nothing had happened: its
former self is removed, and a new one is let in at the same address. Start that
one with an empty folder and --join. The command may be repeated, on this host
or another, if it was interrupted.`,
		Example: `  # on host1; b=host2:8477 has a new disk
  serry peers replace host2:8477 --data-dir /var/lib/serry
  # then on host2
  serry serve --tasks 4 --peers a=host1:8477,b=host2:8477,c=host3:8477 --name b --data-dir /var/lib/serry --join`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return failed(replacePeer(cmd, *dir, args[0]))
		},
	}
}

var errNoFolder = hinted{errors.New("--data-dir is not given"), "it is that of the server on this host: serry peers replace HOST:PORT --data-dir /var/lib/serry"}

func replacePeer(cmd *cobra.Command, dir, address string) error {
	if dir == "" {
		return errNoFolder
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), peersPatience)
	defer cancel()
	if err := member.Replace(ctx, dir, address); err != nil {
		return err
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "there is room for a new server at %s: start it with an empty folder and --join\n", address)
	return err
}

// peersQuery is serry peers.
type peersQuery struct {
	access
	printer
	dir string
}

// States of servers.
const (
	serverLeads   = "leads"
	serverStandby = "stands by"
	serverDown    = "down"
	serverToCome  = "to come" // with --join
)

// A serverStatus is a server in the answer of serry peers.
type serverStatus struct {
	Name    string  `json:"name,omitempty"`
	Address string  `json:"address,omitempty"` // where clients reach it
	Log     string  `json:"log,omitempty"`     // where the other servers reach it
	State   string  `json:"state"`
	Term    uint64  `json:"term,omitempty"`
	Lag     *uint64 `json:"lag,omitempty"` // entries of the log that it has yet to apply; nil: not known
	Error   string  `json:"error,omitempty"`
	Page    string  `json:"page,omitempty"` // of its page, without the token

	applied uint64
	leader  string // that it knows of
	peers   []wire.Peer
}

func (q *peersQuery) run(cmd *cobra.Command) error {
	q.unaddressed = q.dir != ""
	if err := cmp.Or(q.access.resolve(cmd), q.printer.open(cmd)); err != nil {
		return seeHelp(cmd, err)
	}
	ctx := cmd.Context()
	known, err := q.members(ctx)
	if err != nil {
		return runError{err}
	}
	servers, err := q.survey(ctx, known)
	if err != nil {
		return runError{err}
	}
	return failed(q.show(servers))
}

// members lists what the folder of a server tells.
func (q *peersQuery) members(ctx context.Context) ([]wire.Peer, error) {
	if q.dir == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	list, err := member.List(ctx, q.dir)
	if err != nil {
		return nil, hinted{fmt.Errorf("no server answers in %s: %w", q.dir, err), "is it running, and does a majority? serry peers --address asks the others"}
	}
	var all []wire.Peer
	for _, p := range list {
		all = append(all, wire.Peer(p))
	}
	return all, nil
}

// maxServers bounds how many servers are asked.
const maxServers = 64

// survey asks every server that is known, and those that they know.
func (q *peersQuery) survey(ctx context.Context, known []wire.Peer) ([]serverStatus, error) {
	secure, err := q.secure()
	if err != nil {
		return nil, err
	}
	line := dialer{timeout: q.timeout, secure: secure, fail: func(error) {}}
	asked := make(map[string]serverStatus)
	next := append(addressesOf(known), splitAddresses(q.address)...)
	for len(next) > 0 && len(asked) < maxServers {
		var found []string
		for _, s := range line.askAll(ctx, next) {
			asked[s.asked] = s.serverStatus
			known = append(known, s.peers...)
			found = append(append(found, s.leader), addressesOf(s.peers)...)
		}
		next = slices.DeleteFunc(unique(found), func(a string) bool { _, done := asked[a]; return done || a == "" })
	}
	return assemble(asked, known), nil
}

func splitAddresses(list string) []string {
	if list == "" {
		return nil
	}
	return unique(strings.Split(list, ","))
}

func addressesOf(peers []wire.Peer) []string {
	var all []string
	for _, p := range peers {
		if p.Address != "" {
			all = append(all, p.Address)
		}
	}
	return unique(all)
}

func unique(all []string) []string {
	all = slices.Clone(all)
	slices.Sort(all)
	return slices.Compact(all)
}

// surveyed is what a server said that was asked at an address. It may have another name for itself.
type surveyed struct {
	asked string
	serverStatus
}

// askAll asks servers at the same time.
func (d dialer) askAll(ctx context.Context, addresses []string) []surveyed {
	all := make([]surveyed, len(addresses))
	var asking sync.WaitGroup
	for i, address := range addresses {
		asking.Go(func() { all[i] = surveyed{address, d.to(address).ask(ctx)} })
	}
	asking.Wait()
	return all
}

// ask asks one server what it is. It speaks HTTP/2: a stream would be sent on to the leader.
func (d dialer) ask(ctx context.Context) serverStatus {
	ctx, cancel := context.WithTimeoutCause(ctx, d.timeout, fmt.Errorf("no answer within %v", d.timeout))
	defer cancel()
	down := func(err error) serverStatus {
		return serverStatus{Address: d.address, State: serverDown, Error: whyDown(err)}
	}
	nc, err := d.dial(ctx)
	if err != nil {
		return down(err)
	}
	c := back.New(nc, d.address, back.Options{})
	defer c.Close()
	body, st, err := c.Call(ctx, wire.ServerMethod, nil)
	switch {
	case err != nil:
		return down(err)
	case st.Code == codes.Unimplemented: // the only server of its service
		return serverStatus{Address: d.address, State: serverLeads}
	case !st.OK():
		return down(errors.New(st.Message))
	}
	reply, err := wire.ReadServerReply(body)
	if err != nil {
		return down(err)
	}
	s := serverStatus{Name: reply.Name, Address: reply.Address, State: serverStandby, Term: reply.Term, applied: reply.Applied, leader: reply.Leader, peers: reply.Peers, Page: reply.Page}
	if reply.Leads {
		s.State = serverLeads
	}
	return s
}

// whyDown says in a few words why a server does not answer.
func whyDown(err error) string {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "refused"
	}
	return shortened(err).Error()
}

// assemble puts together what servers said of themselves and of each other, each server once.
func assemble(asked map[string]serverStatus, known []wire.Peer) []serverStatus {
	byAddress := make(map[string]serverStatus)
	var newest uint64
	for address, s := range asked {
		newest = max(newest, s.applied)
		if s.State != serverDown {
			byAddress[s.Address] = s
		} else if _, up := byAddress[address]; !up {
			byAddress[address] = s
		}
	}
	for _, p := range known {
		address := cmp.Or(p.Address, p.Log)
		s, found := byAddress[address]
		switch {
		case p.Name == "":
			s = serverStatus{State: serverToCome}
		case !found:
			s = serverStatus{State: serverDown}
		}
		s.Name, s.Address, s.Log = p.Name, p.Address, p.Log
		byAddress[address] = s
	}
	var all []serverStatus
	for _, s := range byAddress {
		if s.applied > 0 {
			lag := newest - s.applied
			s.Lag = &lag
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b serverStatus) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(cmp.Or(a.Address, a.Log), cmp.Or(b.Address, b.Log)))
	})
	return all
}

var errNoLeader = errors.New("no server leads")

func (q *peersQuery) show(servers []serverStatus) error {
	done, err := q.object(struct {
		Version int            `json:"version"`
		Servers []serverStatus `json:"servers"`
	}{outputVersion, servers})
	if !done {
		err = q.table(serverTable(servers))
	}
	leads := slices.ContainsFunc(servers, func(s serverStatus) bool { return s.State == serverLeads })
	if err == nil && !leads {
		return hinted{errNoLeader, "start those that are down: a majority of them must run"}
	}
	return err
}

func serverTable(servers []serverStatus) *table {
	colours := map[string]colour{serverLeads: green, serverDown: red, serverToCome: yellow}
	t := &table{columns: []column{
		{title: "NAME", most: 24}, {title: "ADDRESS", most: 40}, {title: "PEER ADDRESS", most: 40}, {title: "STATE"}, {title: "TERM", right: true},
		{title: "LAG", right: true}, {title: "WHY"},
	}}
	for _, s := range servers {
		term, lag := "-", "-"
		if s.Term > 0 {
			term = fmt.Sprint(s.Term)
		}
		if s.Lag != nil {
			lag = fmt.Sprint(*s.Lag)
		}
		text := s.Error
		if s.State == serverToCome {
			text = "start it with an empty folder and --join"
		}
		t.add(cell{text: cmp.Or(s.Name, "-")}, cell{text: cmp.Or(s.Address, "-")}, cell{text: cmp.Or(s.Log, "-")}, cell{s.State, colours[s.State]},
			cell{text: term}, cell{text: lag}, cell{text: text})
	}
	return t
}
