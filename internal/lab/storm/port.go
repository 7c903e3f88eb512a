package storm

import (
	"io"
	"net"
	"sync"

	"github.com/serry-dev/serry/wire/rpc"
)

// A port is a local connection of a process to its relay. It stands where HTTP/2 does: what passes is
// the same calls and replies. It implements rpc.Conn.
type port struct {
	handler rpc.Handler
	gone    chan struct{} // closed when the connection has ended
	once    sync.Once

	serving sync.Mutex // held while the handler takes a call
	mu      struct {
		sync.Mutex
		last    rpc.CallID
		waiting map[rpc.CallID]chan<- answer
	}
}

// An answer is how a call ended.
type answer struct {
	body   []byte
	status rpc.Status
}

func newPort(h rpc.Handler) *port {
	p := &port{handler: h, gone: make(chan struct{})}
	p.mu.waiting = make(map[rpc.CallID]chan<- answer)
	h.Open(p)
	return p
}

// send makes a call, and returns where its answer will lie.
func (p *port) send(method string, body []byte) (rpc.CallID, <-chan answer) {
	ch := make(chan answer, 1)
	p.mu.Lock()
	p.mu.last++
	call := p.mu.last
	p.mu.waiting[call] = ch
	p.mu.Unlock()
	p.serving.Lock()
	defer p.serving.Unlock()
	select {
	case <-p.gone:
	default:
		p.handler.Serve(p, call, method, body)
		p.handler.Served(p)
	}
	return call, ch
}

// cancel gives a call up.
func (p *port) cancel(call rpc.CallID) {
	p.mu.Lock()
	delete(p.mu.waiting, call)
	p.mu.Unlock()
	p.handler.Cancel(p, call)
}

// close ends the connection, as the end of a process does.
func (p *port) close() {
	p.once.Do(func() {
		close(p.gone)
		p.serving.Lock()
		defer p.serving.Unlock()
		p.handler.Close(p, io.EOF)
	})
}

// Reply implements rpc.Conn.
func (p *port) Reply(call rpc.CallID, body []byte, st rpc.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ch := p.mu.waiting[call]; ch != nil {
		delete(p.mu.waiting, call)
		ch <- answer{append([]byte(nil), body...), st}
	}
}

// Flush implements rpc.Conn.
func (p *port) Flush() {}

// RemoteAddr implements rpc.Conn.
func (p *port) RemoteAddr() net.Addr { return &net.UnixAddr{} }
