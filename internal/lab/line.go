package lab

import (
	"context"
	"net"
	"path"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/tfpb"
)

// A Line is the way of members to a Lab, a connection of their own through memory. It is a
// client.Transport, and it keeps how calls failed.
type Line struct {
	client.Transport
	plug

	ends struct {
		sync.Mutex
		failed map[string][]*Error // by the last part of the path
	}
}

// Line makes a line that ends with the test.
func (l *Lab) Line(t testing.TB, o client.DialOptions) *Line {
	t.Helper()
	k := new(Line)
	k.ends.failed = make(map[string][]*Error)
	o.Connect = func(ctx context.Context, _ string) (net.Conn, error) { return k.keep(l.door.dial(ctx)) }
	transport, err := client.Dial("lab", o)
	if err != nil {
		t.Fatalf("client.Dial() = %v", err)
	}
	k.Transport = transport
	t.Cleanup(func() { _ = transport.Close() })
	return k
}

// Call passes a call on.
func (k *Line) Call(ctx context.Context, method string, body []byte) ([]byte, rpc.Status, error) {
	reply, st, err := k.Transport.Call(ctx, method, body)
	k.ends.Lock()
	defer k.ends.Unlock()
	if err == nil && !st.OK() {
		name := path.Base(method)
		k.ends.failed[name] = append(k.ends.failed[name], statusError(st))
	}
	return reply, st, err
}

// Refused returns how the service refused the last call of a method, or nil. Calls of serry's own
// dialect are never refused so: their replies carry the error.
func (k *Line) Refused(method string) *Error {
	k.ends.Lock()
	defer k.ends.Unlock()
	all := k.ends.failed[method]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

func statusError(st rpc.Status) *Error {
	e := &Error{Code: st.Code, Message: st.Message, Details: st.Details}
	var c tfpb.GrpcPayloadContainer
	if proto.Unmarshal(st.Details, &c) == nil {
		e.Payloads = c.GetPayloads()
	}
	return e
}
