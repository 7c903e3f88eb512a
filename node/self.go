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

// answering replies to calls about the node itself. It passes all other calls on to the relay, which sends them to the leader.
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

// Announce sets the address of the page of this node. The node has it in its answers to [wire.ServerMethod], from which the pages of other
// servers take their links to this one.
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

// self is the reply to a call about this node: what it is, and which other nodes it knows.
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
