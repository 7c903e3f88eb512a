package wire

import (
	"encoding/json"
	"fmt"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/rpc"
)

// LeadMethod is asked of a service by people: who leads, to hand over, and to end. It is not for tasks.
const LeadMethod = "/serry.Service/Lead"

const maxLeadBytes = 1 << 10

// LeadRequest is what LeadMethod is asked.
type LeadRequest struct {
	Handover bool `json:"handover,omitempty"` // end this leadership, so that another server goes on
	Stop     bool `json:"stop,omitempty"`     // end the service, and with it the job (C-STOP-1)
}

// LeadReply answers LeadMethod. It comes before the leadership ends.
type LeadReply struct {
	Term     uint64 `json:"term"`               // of the leadership that was asked
	Stopping bool   `json:"stopping,omitempty"` // the service ends; a server that does not know Stop leaves it out
}

// ReadLead reads what LeadMethod is asked.
func ReadLead(body []byte) (LeadRequest, error) {
	var r LeadRequest
	if len(body) == 0 {
		return r, nil
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("%s: %w", LeadMethod, err)
	}
	return r, nil
}

// Bytes is how the request is written.
func (r LeadRequest) Bytes() []byte { return leadBytes(r) }

// Bytes is how the reply is written.
func (r LeadReply) Bytes() []byte { return leadBytes(r) }

func leadBytes(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("wire: %v", err)) // numbers, booleans and strings always have a text
	}
	return b
}

// ReadLeadReply reads the answer of LeadMethod.
func ReadLeadReply(body []byte) (LeadReply, error) {
	var r LeadReply
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("%s: %w", LeadMethod, err)
	}
	return r, nil
}

// ServerMethod is asked of one server by people: whether it leads, and which other servers it knows. Every server of
// several answers it for itself, over HTTP/2, whether it leads or stands by. It is not for tasks.
const ServerMethod = "/serry.Service/Server"

// ServerMethods are those that a server of several answers for itself.
func ServerMethods() rpc.Methods {
	return rpc.Methods{ServerMethod: {MaxRequestBytes: maxLeadBytes}}
}

// A ServerReply answers ServerMethod.
type ServerReply struct {
	Name    string `json:"name,omitempty"`    // among the peers
	Address string `json:"address"`           // where clients reach it
	Leads   bool   `json:"leads"`             // it serves
	Leader  string `json:"leader,omitempty"`  // address of the server that leads, as far as this one knows
	Term    uint64 `json:"term,omitempty"`    // of that leadership
	Applied uint64 `json:"applied,omitempty"` // entries of the log that the peers share, which it has
	Peers   []Peer `json:"peers,omitempty"`   // all servers, this one included
	Page    string `json:"page,omitempty"`    // address of its page for people, without the token
}

// A Peer is a server as the others know it.
type Peer struct {
	Name    string `json:"name,omitempty"`    // empty: it has not been there yet
	Address string `json:"address,omitempty"` // where clients reach it; empty: not known
	Log     string `json:"log"`               // where the others reach it
}

// Bytes is how the reply is written.
func (r ServerReply) Bytes() []byte { return leadBytes(r) }

// ReadServerReply reads the answer of ServerMethod.
func ReadServerReply(body []byte) (ServerReply, error) {
	var r ServerReply
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("%s: %w", ServerMethod, err)
	}
	return r, nil
}

// PollEnded is the answer to an error poll that this server will not answer any more, though all is well:
// clients go on without one.
func PollEnded() rpc.Status {
	_, st := Shape{Op: opPoll}.Encode(coord.Reply{Err: serry.ErrStopping})
	return st
}
