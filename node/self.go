package node

import (
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// Members knows the nodes of a service whose store is a part of them (package store/member). Its methods do not wait.
type Members interface {
	Applied() uint64     // entries of the log that the nodes share, which this one has
	Peers() []store.Peer // all nodes
}

// answering answers what a node is asked about itself. All other calls are for the leader, which the relay finds.
type answering struct {
	rpc.Handler
	node *Node
}

// Serve implements [rpc.Handler].
func (a answering) Serve(c rpc.Conn, call rpc.CallID, method string, body []byte) {
	if method != wire.ServerMethod {
		a.Handler.Serve(c, call, method, body)
		return
	}
	c.Reply(call, a.node.self().Bytes(), rpc.Status{})
}

// Announce says where people see the page of this node, which then tells it to all who ask about the node: the pages of other servers
// lead there.
func (n *Node) Announce(page string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.page = page
}

func (n *Node) page() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.page
}

// self says what this node is, and which others it knows.
func (n *Node) self() wire.ServerReply {
	leader, leads := n.Leader()
	r := wire.ServerReply{Name: n.cfg.Name, Address: n.cfg.Address, Leads: leads, Leader: leader.Address, Term: leader.Term, Page: n.page()}
	if n.cfg.Members != nil {
		r.Applied = n.cfg.Members.Applied()
		for _, p := range n.cfg.Members.Peers() {
			r.Peers = append(r.Peers, wire.Peer(p))
		}
	}
	return r
}
