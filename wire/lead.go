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
		panic(fmt.Sprintf("wire: %v", err)) // numbers and booleans always have a text
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

// PollEnded is the answer to an error poll that this server will not answer any more, though all is well:
// clients go on without one.
func PollEnded() rpc.Status {
	_, st := Shape{Op: opPoll}.Encode(coord.Reply{Err: serry.ErrStopping})
	return st
}
