package relay

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// answered is a connection that keeps the status of the last reply.
type answered struct {
	rpc.Conn
	status rpc.Status
}

func (a *answered) Reply(_ rpc.CallID, _ []byte, st rpc.Status) { a.status = st }

// A relay passes on no call of an operator, which would reach the service with the certificate of the relay.
func TestRelayRefusesOperators(t *testing.T) {
	clause.Cite(t, "SEC-43")
	a := new(answered)
	(*handler)(new(Relay)).Serve(a, 1, wire.LeadMethod, wire.LeadRequest{Stop: true}.Bytes())
	if a.status.Code != codes.PermissionDenied {
		t.Errorf("an order to stop is answered with %+v; want PermissionDenied", a.status)
	}
}
